"""What verdicts said of machines: written with the verdict, changed only by another one, told by machine and as a list."""

import asyncio
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from hangdog.main import main
from hangdog_models.incident import Incident, IncidentState
from hangdog_models.machine_history import MentionKind
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, Suspect, Verdict, to_json
from hangdog_server.settings import ServerSettings
from hangdog_server.store import machine_history
from hangdog_server.store.machine_history import MOST
from hangdog_server.store.retention import Retention
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed
from support.cases.old_store import BEFORE_0013, OLD, old
from support.servers.cast import NOON, stage, verdict
from support.worded import names

DAY = 86400.0
NONE = verdict(Snapshot(Job("llama"), (Round(0, ()),)), Topology(8, {}, {"a": (Rank(0),)}))


def naming(*named: tuple[float, tuple[str, ...]], evict: tuple[str, ...] = ()) -> Verdict:
    """A verdict with these hypotheses."""
    suspects = tuple(Suspect((), machines, probability, ()) for probability, machines in named)
    return replace(NONE, kind=Kind.MACHINE, suspects=suspects, evict=Eviction(evict, 0.97 if evict else 0.0))


async def judged(store: Store, name: str, at: float, said: Verdict, job: str = "llama") -> None:
    await store.begin(Incident(name, job, at), {})
    await store.judged(name, said, at)


async def lines(store: Store, machine: str) -> list[tuple[str, str, float, int]]:
    entries = await store.ask(machine_history.of, machine, 0.0, 100)
    return [(entry.incident, str(entry.mention), entry.probability, entry.among) for entry in entries]


async def test_machines_are_remembered_across_jobs_by_their_standing(where: Path | str) -> None:
    store = Store(where)
    await judged(store, "0a", 1.0, naming((0.97, ("a",)), (0.02, ("b", "c")), evict=("a",)))
    await judged(store, "0b", 2.0, naming((0.6, ("a", "b"))), job="qwen")
    await judged(store, "0c", 3.0, NONE)
    assert await lines(store, "a") == [("0b", "suspected", 0.6, 2), ("0a", "convicted", 0.97, 1)]
    assert await lines(store, "b") == [("0b", "suspected", 0.6, 2), ("0a", "suspected", 0.02, 2)]
    (newest, _) = await store.ask(machine_history.of, "a", 0.0, 9)
    assert (newest.job, newest.at, newest.kind) == ("qwen", 2.0, "machine")
    assert (
        await store.ask(machine_history.of, "a", 1.5, 9)
        == (newest,)
        == (await store.ask(machine_history.of, "a", 0.0, 1))
    )
    worst = await store.ask(machine_history.worst, 0.0, 9)
    assert [(one.machine, one.convicted, one.suspected, round(one.weight, 3), one.last) for one in worst] == [
        ("a", 1, 1, 1.27, 2.0), ("b", 0, 2, 0.31, 2.0), ("c", 0, 1, 0.01, 1.0),
    ]  # fmt: skip
    assert [one.machine for one in await store.ask(machine_history.worst, 1.5, 1)] == ["a"]
    store.close()


async def test_a_later_verdict_upon_the_same_incident_clears_and_convicts(where: Path | str) -> None:
    store = Store(where)
    await judged(store, "0a", 1.0, naming((0.6, ("a",)), (0.3, ("b",))))
    await store.judged("0a", naming((0.7, ("a",)), (0.2, ("b",))), 2.0)
    assert await lines(store, "a") == [("0a", "suspected", 0.7, 1)], "the same standing is no other line"
    await store.judged("0a", naming((0.98, ("b",)), evict=("b",)), 3.0)
    await store.judged("0a", naming((0.98, ("b",)), evict=("b",)), 4.0)
    assert await lines(store, "a") == [("0a", "cleared", 0.0, 1), ("0a", "suspected", 0.7, 1)]
    assert await lines(store, "b") == [("0a", "convicted", 0.98, 1), ("0a", "suspected", 0.2, 1)]
    worst = await store.ask(machine_history.worst, 0.0, 9)
    assert [(one.machine, one.convicted, one.suspected, one.cleared) for one in worst] == [
        ("b", 1, 0, 0),
        ("a", 0, 0, 1),
    ]
    store.close()


async def test_a_hypothesis_of_half_the_job_says_nothing_of_a_machine(where: Path | str) -> None:
    store = Store(where)
    many = tuple(f"m{number}" for number in range(MOST + 1))
    await judged(store, "0a", 1.0, naming((0.9, many), (0.05, ("a",))))
    assert [one.machine for one in await store.ask(machine_history.worst, 0.0, 99)] == ["a"]
    store.close()


async def test_verdict_and_ledger_are_written_together_or_not_at_all(where: Path | str) -> None:
    store = Store(where)
    await store.begin(Incident("0a", "llama", 1.0), {})
    await store.do(lambda c: c.execute(sa.text("DROP TABLE ledger")))
    with pytest.raises(StoreFailed):
        await store.judged("0a", naming((0.97, ("a",)), evict=("a",)), 2.0)
    assert (await store.find("0a")).state is IncidentState.SUSPECTED
    store.close()


async def test_it_outlives_incidents_removed_for_their_size_and_is_forgotten_with_age(where: Path | str) -> None:
    store = Store(where)
    await judged(store, "0a", NOON - 400 * DAY, naming((0.97, ("a",)), evict=("a",)))
    await judged(store, "0b", NOON - DAY, naming((0.5, ("a",))))
    await Retention(store, replace(ServerSettings(), keep_bytes=1, keep_s=0.0), lambda: NOON).once()
    assert await store.latest("", 9) == () and len(await lines(store, "a")) == 2
    await Retention(store, ServerSettings(), lambda: NOON).once()
    assert await lines(store, "a") == [("0b", "suspected", 0.5, 1)]
    store.close()


async def test_verdicts_of_an_older_hangdog_are_taken_in_as_if_written_today(memory: Path) -> None:
    said = naming((0.9, ("a",)), (0.4, ("b", "c")), (0.1, ("a", "d")), evict=("a", "b"))
    script = OLD.replace('\'{"schema": "hangdog.verdict/1"}\'', f"'{json.dumps(to_json(said))}'")
    store = Store(old(memory / "s.db", script))
    found = {name: (await store.ask(machine_history.of, name, 0.0, 9))[0] for name in "abcd"}
    told = {name: (one.mention, one.probability, one.among) for name, one in found.items()}
    assert told == machine_history.mentions(said)
    assert told["a"] == (MentionKind.CONVICTED, 0.9, 1) and found["a"].at == 9.0
    store.close()
    with sqlite3.connect(memory / "s.db") as file:
        file.execute("UPDATE incidents SET verdict = '[]'")  # whatever stood there before is no reason not to start
        file.executescript(";".join(BEFORE_0013))
        file.executescript(
            "DROP TABLE ledger; DROP TABLE leases; DROP TABLE launches; DROP TABLE campaigns; DROP TABLE tests; DROP TABLE parts;"
            "DROP TABLE convictions; DROP TABLE intents; DROP TABLE breaker; DROP TABLE notices; DROP TABLE standstills; DROP TABLE sessions; DROP TABLE dates;"
            "ALTER TABLE captures DROP COLUMN before;"
            "UPDATE alembic_version SET version_num = '0002'"
        )
    file.close()
    store = Store(memory / "s.db")
    assert await store.ask(machine_history.worst, 0.0, 9) == ()
    store.close()


async def test_people_are_told_by_a_command(memory: Path) -> None:
    async with stage(memory / "s.db") as on:

        async def told(*arguments: str) -> str:
            command = ["ledger", *arguments, "--server", on.address]
            result = await asyncio.to_thread(CliRunner().invoke, main, command, env={"COLUMNS": "80"})
            assert result.exit_code == 0, result.output
            return result.stdout

        for nothing in (await told(), await told("x")):
            assert names(nothing, "no verdict") and nothing.count("\n") == 1
        assert names(await told("x"), "x")
        await judged(on.store, "0a1b2c3d4e5f", NOON - 10 * DAY, naming((0.97, ("gpu-a17",)), evict=("gpu-a17",)))
        await judged(on.store, "1a1b2c3d4e5f", NOON - DAY, naming((0.6, ("gpu-a17", "gpu-a18"))), job="qwen")
        machines = (await told()).splitlines()
        assert machines[1].split()[:5] == ["gpu-a17", "1", "1", "0", "1.27"] and len(machines) == 3
        entries = await told("gpu-a17")
        assert "60% of 2" in entries and "1a1b2c3d4e5f" in entries and max(map(len, entries.splitlines())) <= 80
        assert len((await told("gpu-a17", "--days", "5")).splitlines()) == 2
        assert len((await told("--limit", "1")).splitlines()) == 2
        document = json.loads(await told("gpu-a17", "--format", "json"))
        assert document["schema"] == "hangdog.ledger/1" and document["entries"][1]["probability"] == 0.97
        (first, second) = json.loads(await told("--format", "json"))["machines"]
        assert (first["machine"], first["convicted"], second["weight"]) == ("gpu-a17", 1, 0.3)
