"""The lines of the machines: made anew only where something changed, which leaves them as if all were made anew."""

import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from hangdog_models.findings import Finding, Impact
from hangdog_models.lists.list_kinds import MACHINES
from hangdog_models.lists.list_query import ListQuery
from hangdog_models.machine_history import MentionKind
from hangdog_models.ranks import Rank
from hangdog_server.cluster.connection import Connection
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.grpc_api.lists import machine_table
from hangdog_server.grpc_api.lists.machine_table import MachineTable
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.store.store import Store
from hangdog_server.store.tables import LEDGER
from support.servers.cast import NOON, PATIENT

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

QUICK = replace(PATIENT, heartbeat_s=60.0, max_machines=100)


def found(code: str, age_s: float = 1.0) -> Finding:
    return Finding("kernel", code, Impact.SUSPECTS, "it is not well", age_s=age_s)


class Cluster:
    """Machines that come, go, start jobs, find something and are accused, by chance."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.chance, self.fleet = store, random.Random(seed), Fleet(QUICK)
        self.here: dict[str, Connection] = {}

    async def happens(self) -> None:
        name, what = f"gpu-{self.chance.randrange(12)}", self.chance.randrange(6)
        one = self.here.get(name)
        if one is None:
            self.here[name] = self.fleet.connect(name, self.chance.choice("12"), "p", steady(), paced=False)
        elif what == 0:
            one.leaving = self.chance.random() < 0.5
            self.fleet.disconnect(self.here.pop(name), steady())
        elif what == 1:
            self.fleet.announce(one, {"j": AnnouncedJob(self.chance.choice(("llama", "qwen")), (Rank(0),))}, steady())
        elif what == 2:
            self.fleet.checked(one, (found(f"Xid {self.chance.randrange(3)}"),))
        elif what == 3:
            one.last_message = steady() - self.chance.choice((0.0, 1000.0))
            self.fleet.changes += 1  # else it is seen a second later
        else:
            mention = self.chance.choice((MentionKind.SUSPECTED, MentionKind.CONVICTED, MentionKind.TAKEN_BACK))
            await self.store.do(accuse, f"gpu-{self.chance.randrange(15)}", mention)


def put_together(fleet: Fleet, job: str) -> dict[str, AnnouncedJob]:
    """Where a job runs, by what its machines announced, without what the fleet remembers."""
    entry = fleet._roster.get(job)
    assert entry is not None
    return {machine: fleet.placed(machine, local) for machine, local in entry.claims.owned().items()}


def accuse(connection: sa.Connection, machine: str, mention: MentionKind) -> None:
    said = {"machine": machine, "incident": "a", "job": "llama", "at": NOON, "mention": mention}
    connection.execute(LEDGER.insert().values(**said, probability=0.5, among=1, kind="machine"))


@pytest.mark.parametrize("seed", range(3))
async def test_lines_are_as_if_all_were_made_anew(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_table, "SHORT_S", float("inf"))  # no table is so long that it rests
    store = Store(tmp_path / "s.db")
    cluster = Cluster(store, seed)
    table = MachineTable(cluster.fleet, store)
    marks = set()
    for turn in range(60):
        await cluster.happens()
        sort = cluster.chance.choice(MACHINES.sorts)
        query = ListQuery(MACHINES, sort=sort, limit=100)
        anew = MachineTable(cluster.fleet, store)
        mine, theirs = await table.page(query, NOON), await anew.page(query, NOON)
        assert [replace(one, silent_s=None) for one in mine.rows] == [
            replace(one, silent_s=None) for one in theirs.rows
        ], turn
        assert mine.counts == theirs.counts and await table.mark(NOON) == await anew.mark(NOON)
        for job in cluster.fleet.jobs():
            assert cluster.fleet.asked(job) == put_together(cluster.fleet, job), turn
        marks.add(await table.mark(NOON))
        anew.close()
    assert len(marks) > 20, "what changed changes the mark"
    table.close()
    store.close()


async def test_only_what_changed_is_made_anew_and_not_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    line = machine_table._line

    def counting(name: str, of: machine_table._LineParts) -> object:
        assert threading.current_thread().name.startswith("lists"), "agents wait for the event loop"
        made.append(name)
        return line(name, of)

    monkeypatch.setattr(machine_table, "_line", counting)
    store, fleet = Store(tmp_path / "s.db"), Fleet(QUICK)
    table, query = MachineTable(fleet, store), ListQuery(MACHINES)
    here = [fleet.connect(name, "1", "p", steady()) for name in "abc"]
    assert (await table.page(query, NOON)).found == 3 and made == ["a", "b", "c"]
    here[0].last_message = steady()
    fleet.checked(here[1], (found("Xid 48"),))
    await table.page(query, NOON)
    assert made == ["a", "b", "c", "b"]
    mark, changes = await table.mark(NOON), fleet.changes
    fleet.checked(here[1], (found("Xid 48", 9.0),))
    assert (fleet.changes, await table.mark(NOON)) == (changes, mark), "a finding that only ages is none"
    table.close()
    store.close()


async def test_a_long_table_rests_while_agents_come_and_go_but_not_from_what_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_table, "SHORT_S", 0.0)
    monkeypatch.setattr(machine_table, "REST", 1e9)
    monkeypatch.setattr(machine_table, "SILENT_SEEN_S", 3600.0)
    store, fleet = Store(tmp_path / "s.db"), Fleet(QUICK)
    table, query = MachineTable(fleet, store), ListQuery(MACHINES)
    fleet.connect("a", "1", "p", steady())
    assert (await table.page(query, NOON)).found == 1
    fleet.connect("b", "1", "p", steady())
    assert (await table.page(query, NOON)).found == 1, "it rests"
    await store.do(accuse, "a", MentionKind.CONVICTED)
    rows = (await table.page(query, NOON)).rows
    assert [(one.name, one.convicted) for one in rows] == [("a", 1), ("b", 0)], "a verdict is shown at once"
    table.close()
    store.close()


async def test_what_one_machine_shows_has_a_mark_of_its_own(tmp_path: Path) -> None:
    store, fleet = Store(tmp_path / "s.db"), Fleet(QUICK)
    table = MachineTable(fleet, store)
    here = [fleet.connect(name, "1", "p", steady()) for name in "ab"]
    before = [await table.mark(NOON, name) for name in "abz"]
    fleet.checked(here[1], (found("Xid 48"),))
    after = [await table.mark(NOON, name) for name in "abz"]
    assert [mine == theirs for mine, theirs in zip(before, after, strict=True)] == [True, False, True]
    table.close()
    store.close()
