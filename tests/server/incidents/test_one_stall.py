"""One standstill is one incident, however often it is judged; and when the job goes on by itself, its incident tells."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from hangdog.main import main
from hangdog_models.incident import SUSPECTED_WHY, Incident, IncidentState
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology, build
from hangdog_models.verdict import Kind, Verdict
from hangdog_proto.codec.traces import pack
from hangdog_server.cluster import session_tracker, stalls
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents import stall_watch
from hangdog_server.incidents.replay import BEHIND, StoredRound
from hangdog_server.incidents.replay import replay as replayed
from hangdog_server.observability.setup import Observers, observing
from hangdog_server.store.actions import ActionState
from hangdog_server.store.captures import RawCapture
from hangdog_server.store.tables import INTENTS
from support.servers.cast import NOON, PATIENT, Listener, Stage, stage, trainer
from support.servers.stalling import machines, reached, says

pytestmark = [pytest.mark.slow, pytest.mark.parallel]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits as long as in earnest."""
    monkeypatch.setattr(stalls, "AGAIN_S", 0.05)
    monkeypatch.setattr(stall_watch, "TICK_S", 0.02)
    for module in (stalls, session_tracker):
        monkeypatch.setattr(module, "OVER_S", 0.3)


async def seen_again(on: Stage, incident: Incident) -> list[str]:
    """In which functions the ranks stand by what is kept for the verdict."""
    asked, captures = await on.store.recall(incident.id)
    again = replayed("llama", asked, (StoredRound(one.machine, one.round, one.packed) for one in captures))
    build(again.layout, again.snapshot.highest_rank())
    traces = [trace for taken in again.snapshot.rounds for trace in taken.traces]
    return sorted(trace.threads[0].frames[-1].function for trace in traces)


@pytest.mark.parametrize("kind", [Kind.UNDETERMINED, Kind.SLOW, Kind.NONE, Kind.GROUP])
async def test_a_standstill_that_is_judged_three_times_is_one_incident(tmp_path: Path, kind: Kind) -> None:
    async with stage(tmp_path / "s.db", Listener(says(kind))) as on, machines(on) as both:
        for one in both:
            await one.stands()
        incident = await reached(on, lambda found: found.looks >= 3)
        assert (incident.state, incident.kind) == (IncidentState.JUDGED, kind)
        earlier = [(one.look, one.kind) for one in incident.earlier]
        assert earlier == [(number + 1, kind) for number in range(len(earlier))]
        orders = both[0].orders
        assert len(set(orders)) == len(orders), "late answers to one look are not taken for another's"
        assert {order.partition("/")[0] for order in orders} == {incident.id}


async def test_the_verdict_is_that_of_the_latest_look_and_its_captures_tell_the_same(tmp_path: Path) -> None:
    kinds = iter([Kind.UNDETERMINED, Kind.SLOW, Kind.MACHINE])

    def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
        kind = next(kinds)
        return says(kind, *(["a"] if kind is Kind.MACHINE else []))(snapshot, topology)

    async with stage(tmp_path / "s.db", judge) as on, machines(on) as both:
        for one in both:
            await one.stands()
        incident = await reached(on, lambda found: found.kind == Kind.MACHINE)
        assert [one.kind for one in incident.earlier] == [Kind.UNDETERMINED, Kind.SLOW] and incident.evict == ("a",)
        assert await seen_again(on, incident) == ["look 3", "look 3"]
        await asyncio.sleep(0.5)  # it is decided
        assert len(both[0].orders) == 3 and len(await on.store.latest("", 9)) == 1


async def test_a_server_that_ends_in_a_further_look_loses_nothing_and_the_next_goes_on_in_the_same_incident(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path / "s.db") as on, machines(on) as both:
        for one in both:
            await one.stands()
        both[1].most = 2
        before = await reached(on, lambda found: found.looks == 2)
        async with asyncio.timeout(30):
            while sum(one.machine == "a" for one in (await on.store.recall(before.id))[1]) < 3:
                await asyncio.sleep(0.01)
        assert len(both[0].orders) == 3
    async with stage(tmp_path / "s.db") as on:
        incident = await reached(on, lambda found: True)
        native = RawCapture("b", 3 * (PATIENT.rounds + BEHIND) - 1, pack([trainer(1, "native")]).SerializeToString())
        await on.store.keep(incident.id, [native])  # as far as that look had come, too
        assert incident == before and incident.state is IncidentState.JUDGED
        assert await seen_again(on, incident) == ["look 2", "look 2"]
        asked, captures = await on.store.recall(incident.id)
        every = [StoredRound(one.machine, one.round, one.packed) for one in captures]
        judged = [one for one in every if one.number < 2 * (PATIENT.rounds + BEHIND)]
        assert len(judged) < len(every) and replayed("llama", asked, every) == replayed("llama", asked, judged), (
            "what was not judged is no part of it"
        )
        async with machines(on) as both:
            for one in both:
                await one.stands(60.0)
            incident = await reached(on, lambda found: found.looks == 3)
        assert await seen_again(on, incident) == ["look 1", "look 1"], "of these agents it is the first"


async def test_after_a_restart_a_standstill_that_began_later_is_another_incident(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, machines(on) as both:
        for one in both:
            await one.stands()
        await reached(on, lambda found: found.kind)
    async with stage(tmp_path / "s.db", clock=lambda: NOON + 60.0) as on, machines(on) as both:
        for one in both:
            await one.stands(30.0)
        async with asyncio.timeout(30):
            while len(await on.store.latest("", 9)) < 2:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def watched(
    path: Path, judge: Callable[[Snapshot, Topology], Verdict], clock: Callable[[], float]
) -> AsyncIterator[tuple[Stage, Observers]]:
    async with (
        observing("127.0.0.1:0", Fleet(PATIENT)) as observers,
        stage(path, judge, clock=clock, observers=observers) as on,
    ):
        yield on, observers


async def counted(observers: Observers, how: str) -> float:
    reader, writer = await asyncio.open_connection(*observers.metrics.rsplit(":", 1))
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    (line,) = (line for line in text.splitlines() if line.startswith(f'hangdog_incidents_went_on_total{{how="{how}"}}'))
    return float(line.rpartition(" ")[2])


async def asked(on: Stage, *arguments: str) -> str:
    """What a command prints."""
    return (await asyncio.to_thread(CliRunner().invoke, main, [*arguments, "--server", on.address])).stdout


@pytest.mark.parametrize("kind", [Kind.NONE, Kind.SLOW, Kind.UNDETERMINED])
async def test_a_healthy_pause_is_one_incident_that_tells_after_how_long_the_job_went_on(
    tmp_path: Path, kind: Kind
) -> None:
    now = NOON
    async with watched(tmp_path / "s.db", says(kind), lambda: now) as (on, observers), machines(on) as both:
        for one in both:
            await one.stands()
        await reached(on, lambda found: found.looks >= 2)
        assert await counted(observers, "by_itself") == 0
        now += 40.0
        for one in both:
            await one.goes_on()
        incident = await reached(on, lambda found: found.went_on)
        assert 46.0 <= incident.went_on_s < 47.0, "from the beginning of the standstill, six seconds before it was seen"
        assert (incident.state, incident.kind, incident.went_on) == (IncidentState.JUDGED, kind, "went on after 46 s")
        assert await counted(observers, "by_itself") == 1
        now += 100.0
        for one in both:
            await one.stands()
        async with asyncio.timeout(30):
            while len(found := await on.store.latest("", 9)) < 2:
                await asyncio.sleep(0.01)
        assert not found[0].went_on and found[1].id == incident.id, "the next standstill is another incident"

        def line() -> Incident:
            with on.client() as client:
                return client.incident(incident.id)[0]

        told = await asyncio.to_thread(line)
        assert (told.went_on_s, told.earlier) == (incident.went_on_s, incident.earlier)
        listed = await asked(on, "incidents", "--format", "json")
        (shown,) = (one for one in json.loads(listed)["incidents"] if one["id"] == incident.id)
        assert (shown["went_on_s"], shown["looks"], shown["state"]) == (
            round(incident.went_on_s, 1),
            incident.looks,
            "judged",
        )
        assert "46 s" in await asked(on, "incidents")
        words = await asked(on, "show", incident.id)
        assert f"{IncidentState.JUDGED}, {incident.went_on} ({SUSPECTED_WHY} ranks 0-1" in words
        assert "look 1: " in words


async def test_a_job_that_ends_does_not_go_on(tmp_path: Path) -> None:
    async with (
        watched(tmp_path / "s.db", says(Kind.UNDETERMINED), lambda: NOON) as (on, observers),
        machines(on) as both,
    ):
        for one in both:
            await one.stands()
        incident = await reached(on, lambda found: found.kind)
        for one in both:
            await one.ends()
        await asyncio.sleep(1.0)
        assert not (await on.store.find(incident.id)).went_on and await counted(observers, "by_itself") == 0


async def test_a_job_that_goes_on_while_it_is_looked_at_has_its_verdict_first(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, machines(on) as both:
        for one in both:
            one.answers.clear()
            await one.stands()
        await reached(on, lambda found: found.state == IncidentState.CAPTURING)
        for one in both:
            await one.goes_on()
        await asyncio.sleep(1.0)
        assert not (await reached(on, lambda found: True)).went_on
        for one in both:
            one.answers.set()
        incident = await reached(on, lambda found: found.went_on)
        assert incident.kind == Kind.UNDETERMINED and incident.looks == 1


@pytest.mark.parametrize("acted", [False, True])
async def test_who_named_a_machine_is_told_of_and_counted_apart(tmp_path: Path, acted: bool) -> None:
    async with (
        watched(tmp_path / "s.db", says(Kind.MACHINE, "a"), lambda: NOON) as (on, observers),
        machines(on) as both,
    ):
        for one in both:
            await one.stands()
        incident = await reached(on, lambda found: found.kind)
        if acted:
            await on.store.do(_taken, incident.id)
        for one in both:
            await one.goes_on()
        await reached(on, lambda found: found.went_on)
        counts = {how: await counted(observers, how) for how in ("by_itself", "named", "acted")}
        assert counts == {"by_itself": 0, "named": not acted, "acted": acted}


def _taken(connection: sa.Connection, incident: str) -> None:
    row = dict.fromkeys(("job", "domain", "reason", "message", "who", "boot", "serial"), "")
    numbers = dict.fromkeys(("at", "changed", "evidence_at"), NOON)
    connection.execute(INTENTS.delete())  # the server may have refused it meanwhile
    connection.execute(
        INTENTS.insert().values(
            incident=incident, machine="a", state=ActionState.DONE, marked=False, runs={}, **row, **numbers
        )
    )
