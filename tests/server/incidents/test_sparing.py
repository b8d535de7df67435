"""While an incident runs, and for a while behind it, the garbage collector passes over what lived before it."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Verdict
from hangdog_server.incidents import gc_freeze
from hangdog_server.incidents.gc_freeze import spared
from hangdog_server.incidents.rounds import CaptureRounds
from hangdog_server.store.store import Store
from support.servers.cast import Listener, cluster, stage, trainer, verdict

pytestmark = [pytest.mark.slow, pytest.mark.parallel]


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What is in a circle stays, until somebody asks for a collection."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was passed over is so no longer once nothing runs."""
    monkeypatch.setattr(gc_freeze, "_AFTER_S", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_the_cluster_is_spared_until_the_verdict_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []
    judged = Store.judged

    async def stored(self: Store, *given: Any) -> None:
        frozen.append(gc.get_freeze_count())
        await judged(self, *given)

    monkeypatch.setattr(Store, "judged", stored)

    def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
        frozen.append(gc.get_freeze_count())
        return verdict(snapshot, topology)

    async with stage(tmp_path / "s.db", Listener(judge)) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot())
        await a.answer(await a.order(), trainer(0), last=True)
        await asking
        await _thawed()
    assert len(frozen) == 2 and all(frozen)


@pytest.mark.usefixtures("at_once")
async def test_the_last_of_several_incidents_ends_it() -> None:
    with spared():
        with spared():
            assert gc.get_freeze_count() > 0
        await asyncio.sleep(0.01)
        assert gc.get_freeze_count() > 0
    await _thawed()


async def test_behind_the_last_incident_the_cluster_is_spared_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_freeze, "_AFTER_S", 0.05)
    with spared():
        pass
    assert gc.get_freeze_count() > 0
    with spared():  # the next one is not cut short by what was to happen behind the last
        await asyncio.sleep(0.1)
        assert gc.get_freeze_count() > 0
    await _thawed()


@pytest.mark.usefixtures("uncollected")
async def test_what_an_incident_saw_is_gone_with_it_without_the_collector(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", verdict) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot())
        order = await a.order()
        assert _looking(), "it is looked for where it is"
        await a.answer(order, trainer(0), last=True)
        await asking
        async with asyncio.timeout(20):
            while _looking():
                await asyncio.sleep(0.01)


@pytest.mark.usefixtures("uncollected")
async def test_circles_that_were_garbage_before_do_not_outlive_many_incidents() -> None:
    class Circle:
        def __init__(self) -> None:
            self.me = self

    gone = weakref.ref(Circle())
    for _ in range(20):
        with spared():
            pass
    assert gone() is None


@pytest.mark.usefixtures("uncollected")
async def test_nor_do_they_where_incidents_overlap_without_end() -> None:
    class Circle:
        def __init__(self) -> None:
            self.me = self

    with ExitStack() as first:
        first.enter_context(spared())
        gone = weakref.ref(Circle())
        for _ in range(20):
            with ExitStack() as second:
                second.enter_context(spared())
                first.close()
                first.push(second.pop_all())
        assert gone() is None


async def test_no_incident_is_gone_over_as_a_whole_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_freeze, "_GONE_S", 0.05)
    with spared():
        pass
    await _as_usual()  # whatever incidents of tests before left
    wholes = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 2:
            wholes.append(about)

    before = gc.get_threshold()
    gc.callbacks.append(note)
    try:
        with spared():
            wholes.clear()
            kept = [[at] for at in range(500_000)]
        assert not wholes
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 500_000
    assert gc.get_threshold() != before, "what it made is still there"
    await _as_usual()
    assert gc.get_threshold() == before


async def _as_usual() -> None:
    async with asyncio.timeout(20):
        while gc_freeze._usual is not None:
            await asyncio.sleep(0.01)


async def _thawed() -> None:
    async with asyncio.timeout(20):
        while gc.get_freeze_count():
            await asyncio.sleep(0.01)


def _looking() -> bool:
    gc.unfreeze()  # else what was there before the incident is not told
    return any(type(one) is CaptureRounds for one in gc.get_objects())
