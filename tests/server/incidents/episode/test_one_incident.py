"""However a standstill is come upon, and whatever ends in between, it is one incident, and convicts a machine once."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hangdog_models.verdict import Kind
from hangdog_server.cluster import session_tracker, stalls
from hangdog_server.incidents import stall_watch
from hangdog_server.store import machine_history
from support.servers.cast import NOON, Stage, stage
from support.servers.stalling import Machine, machines, reached, says

pytestmark = [pytest.mark.slow, pytest.mark.parallel]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits as long as in earnest."""
    monkeypatch.setattr(stalls, "AGAIN_S", 0.05)
    monkeypatch.setattr(stall_watch, "TICK_S", 0.02)
    for module in (stalls, session_tracker):
        monkeypatch.setattr(module, "OVER_S", 0.3)


async def asked_again(both: list[Machine], before: int) -> None:
    async with asyncio.timeout(90):
        while len(both[0].orders) <= before:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def suspected(on: Stage, seconds: float = 6.0) -> AsyncIterator[list[Machine]]:
    async with machines(on) as both:
        for one in both:
            await one.stands(seconds)
        yield both


DECIDED = [(Kind.MACHINE, ["a"]), (Kind.SOFTWARE, [])]


@pytest.mark.parametrize(("kind", "evict"), DECIDED)
async def test_the_next_server_finds_a_decided_standstill_as_it_was_left(
    tmp_path: Path, kind: Kind, evict: list[str]
) -> None:
    judge = says(kind, *evict)
    async with stage(tmp_path / "s.db", judge) as on, suspected(on):
        before = await reached(on, lambda found: found.kind)
    async with stage(tmp_path / "s.db", judge, clock=lambda: NOON + 60.0) as on, suspected(on, 66.0) as both:
        await asyncio.sleep(1.0)
        incident = await reached(on, lambda found: True)
        assert incident == before and not both[0].orders, "it is decided, and nobody is asked anew"
        for one in both:
            await one.goes_on()
        assert (await reached(on, lambda found: found.went_on)).went_on == "went on after 66 s"
        assert [one.convicted for one in await on.store.ask(machine_history.worst, 0.0, 9)] == [1] * len(evict)


@pytest.mark.parametrize(("kind", "evict"), DECIDED)
async def test_agents_that_come_back_show_the_same_standstill(
    tmp_path: Path, kind: Kind, evict: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_tracker, "OVER_S", 60.0)
    async with stage(tmp_path / "s.db", says(kind, *evict)) as on:
        async with suspected(on):
            before = await reached(on, lambda found: found.kind)
        async with machines(on) as both:
            await asyncio.sleep(0.6)  # they are back, and have not said yet what their ranks show
            for one in both:
                await one.stands(60.0)
            await asyncio.sleep(0.6)
            assert (await reached(on, lambda found: True)).id == before.id


@pytest.mark.parametrize("kind", [Kind.UNDETERMINED, Kind.SOFTWARE, Kind.MACHINE])
async def test_a_look_that_somebody_asks_for_while_a_job_stands_still_belongs_to_its_incident(
    tmp_path: Path, kind: Kind
) -> None:
    ticks = itertools.count()
    async with (
        stage(
            tmp_path / "s.db", says(kind, *["a"] * (kind is Kind.MACHINE)), clock=lambda: NOON + next(ticks) / 1e3
        ) as on,
        suspected(on),
    ):
        before = await reached(on, lambda found: found.kind)
        steps = await on.snapshot("llama", why="page")
        assert steps[-1].incident == before.id and steps[-1].verdict is not None
        incident = await reached(on, lambda found: True)
        assert incident.looks > before.looks and incident.why == before.why
        assert [one.convicted for one in await on.store.ask(machine_history.worst, 0.0, 9)] == [1] * (
            kind is Kind.MACHINE
        )


async def test_who_looks_before_the_suspicion_does_opens_the_incident_of_the_standstill(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", says(Kind.UNDETERMINED)) as on, machines(on) as both:
        name = (await on.snapshot("llama", why="page"))[-1].incident
        for one in both:
            await one.stands(6.0)
        incident = await reached(on, lambda found: found.looks >= 2)
        assert incident.id == name and incident.why.startswith("suspected: ") and incident.why.endswith(": page")


async def test_a_suspicion_that_flaps_is_one_incident_until_the_job_is_seen_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (stalls, session_tracker):
        monkeypatch.setattr(module, "OVER_S", 3.0)
    async with stage(tmp_path / "s.db", says(Kind.MACHINE, "a")) as on, machines(on) as both:
        for seconds in (6.0, 7.0, 8.0, 9.0):
            for one in both:
                await one.stands(seconds)
            await reached(on, lambda found: found.kind)
            await both[0].goes_on()
            await asyncio.sleep(0.2)
        await reached(on, lambda found: not found.went_on)


async def test_an_undetermined_night_is_one_incident_though_nobody_was_heard_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = NOON
    async with stage(tmp_path / "s.db", says(Kind.UNDETERMINED), clock=lambda: now) as on, suspected(on) as both:
        await reached(on, lambda found: found.looks >= 3)
        for hours in range(1, 9):
            before = len(both[0].orders)
            now += 3600.0  # nobody was heard in between
            for one in both:
                await one.stands(6.0 + hours * 3600.0)
            await asked_again(both, before)
        await reached(on, lambda found: found.looks >= 8)
