"""A store whose disk is full keeps nobody from finding who hangs: it is captured, judged, told and shown, and written later."""

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from hangdog_models.incident import Incident, IncidentState
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, Verdict
from hangdog_server import main
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.incidents.incident_run import UNWRITTEN, IncidentServices
from hangdog_server.notifications import notify_loop
from hangdog_server.notifications.notify_config import NotifyConfig
from hangdog_server.notifications.notify_loop import NotifyLoop
from hangdog_server.settings import ServerSettings
from hangdog_server.store import actions
from hangdog_server.store import store as stores
from hangdog_server.store.tables import NOTICES
from support.real.small_disk import small_disk
from support.servers.cast import PATIENT, Stage, cluster, stage, trainer, verdict
from support.servers.notified import Postman, receiver

TWO = {"a": [0], "b": [1]}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", 4096) as folder:
        yield folder


@pytest.fixture
def postman(monkeypatch: pytest.MonkeyPatch) -> Postman:
    """Who carries the server's messages, at once and every time."""
    made = Postman()

    def told(means: IncidentServices, vigil: StallTracker, settings: ServerSettings, told: NotifyConfig) -> NotifyLoop:
        return NotifyLoop(means, vigil, settings, told, made.post)

    monkeypatch.setattr(main, "NotifyLoop", told)
    monkeypatch.setattr(notify_loop, "TICK_S", 0.05)
    monkeypatch.setattr("hangdog_server.incidents.incident_run.AGAIN_S", 0.1)
    return made


def guilty(snapshot: Snapshot, topology: Topology) -> Verdict:
    return replace(verdict(snapshot, topology), kind=Kind.MACHINE, confidence=0.97, evict=Eviction(("a",), 0.97))


def fill(folder: Path) -> Path:
    """Leaves no room at all, not even what SQLite has set aside already."""
    with closing(sqlite3.connect(folder / "s.db")) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return path


async def shown(on: Stage) -> tuple[Incident, Verdict | None]:
    def ask() -> tuple[Incident, Verdict | None]:
        with on.client() as client:
            (line,) = client.incidents()
            found, said = client.incident(line.id[:6])
            assert found == line
            return line, said

    return await asyncio.to_thread(ask)


async def until(what: object, seconds: float = 20.0) -> None:
    assert callable(what)
    async with asyncio.timeout(seconds):
        while not (await what()):
            await asyncio.sleep(0.05)


async def judged(on: Stage) -> list[str]:
    """Has the two machines looked at, and judged; what is said meanwhile."""
    async with cluster(on, **TWO) as agents:
        asking = asyncio.create_task(on.snapshot("llama", rounds=1))
        for rank, agent in enumerate(agents):
            await agent.answer(await agent.order(), trainer(rank), last=True)
        steps = await asking
    assert steps[-1].verdict is not None and steps[-1].verdict.kind is Kind.MACHINE
    return [step.text for step in steps]


@pytest.mark.parametrize("begun", [False, True], ids=["full before", "full while it runs"])
async def test_an_incident_on_a_full_disk_is_judged_told_shown_and_written_when_there_is_room(
    small: Path, postman: Postman, begun: bool
) -> None:
    settings = replace(PATIENT, lease_s=600.0)
    filler: Path | None = None

    def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
        nonlocal filler
        filler = filler or fill(small)
        return guilty(snapshot, topology)

    async with stage(small / "s.db", judge, settings, tells=NotifyConfig((receiver(),), "")) as on:
        if not begun:
            filler = fill(small)
        said = await judged(on)
        assert "not stored" in said[-1]
        line, verdict_ = await shown(on)
        assert (line.state, line.kind, line.evict) == ("judged", "machine", ("a",))
        assert line.note.startswith(UNWRITTEN) and verdict_ is not None and verdict_.kind is Kind.MACHINE

        async def told() -> bool:
            return any("holds the job up" in title or "evict" in title.lower() for title in postman.titles())

        await until(told)
        assert "not written" in postman.given[-1][1].lines[-1]
        titles = postman.titles()
        assert await on.store.evicting(0.0) == (), "nothing acts upon what is not written"
        assert await on.store.ask(actions.latest, 9) == ()

        assert filler is not None
        filler.unlink()

        async def written() -> bool:
            return not on.store.unwritten

        # the next one to be looked for is the judged one in the store itself
        await until(written)
        found = await on.store.ask(stores._find, line.id)
        assert (found.state, found.kind, found.evict, found.note) == (IncidentState.JUDGED, "machine", ("a",), "")
        assert len(await on.store.evicting(0.0)) == 1
        assert (await on.store.kept(line.id))[1] == 2, "its captures, too"

        async def noted() -> bool:
            rows = await on.store.ask(lambda c: c.execute(sa.select(NOTICES.c.state)).scalars().all())
            return bool(rows) and set(rows) == {"sent"}

        await until(noted)
        assert all(postman.titles().count(title) == 1 for title in titles), "nobody is told twice"


async def test_more_than_memory_has_room_for_is_not_kept_and_the_verdict_is(
    small: Path, postman: Postman, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hangdog_server.incidents.capture_archive.MOST_WAITING", 1)
    async with stage(small / "s.db", guilty) as on:
        filler = fill(small)
        await judged(on)
        assert "captures are dropped" in caplog.text
        filler.unlink()

        async def written() -> bool:
            return not on.store.unwritten

        await until(written)
        (line,) = await on.store.latest("", 9)
        assert line.kind == "machine" and on.store.waiting_bytes == 0
    assert os.listdir(small)
