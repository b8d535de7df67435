"""What is too old or too much is removed, in the right order, in bites, and never from under an incident that runs."""

import asyncio
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from hangdog.main import main
from hangdog_models.incident import Incident, IncidentState
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.topology import Topology
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.settings import ServerSettings
from hangdog_server.store.captures import RawCapture
from hangdog_server.store.offline_captures import OfflineCapture, Spooled
from hangdog_server.store.retention import ROWS, Retention
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.store.tables import CAPTURES, SPOOLED
from support.servers.cast import NOON, stage, verdict
from support.worded import names

DAY = 86400.0
JUDGED = verdict(Snapshot(Job("llama"), (Round(0, ()),)), Topology(1, {}, {"a": (Rank(0),)}))
#: No bound but those that a test sets.
ALL = replace(ServerSettings(), keep_s=0.0, keep_captures_s=0.0, keep_bytes=0)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause longer than the shortest."""
    monkeypatch.setattr("hangdog_server.store.retention.PAUSES_S", 0.001)


async def ended(store: Store, name: str, ago_s: float, size: int = 1000, machines: int = 1) -> None:
    """An incident that was judged so long ago."""
    await store.begin(Incident(name, "llama", NOON - ago_s), {"light": False})
    await store.keep(name, [RawCapture(f"m{number}", 0, os.urandom(size)) for number in range(machines)])
    await store.judged(name, JUDGED, NOON - ago_s)


async def prune(store: Store, settings: ServerSettings) -> None:
    await Retention(store, settings, lambda: NOON).once()


async def left(store: Store) -> dict[str, int]:
    """The incidents there are, newest first, and how many captures of each."""
    return {line.id: len((await store.recall(line.id))[1]) for line in await store.latest("", 100)}


async def test_captures_go_a_month_after_the_end_and_incidents_after_a_year(
    where: Path | str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(where)
    for name, days in (("0d", 400), ("0c", 31), ("0b", 29), ("0a", 0)):
        await ended(store, name, days * DAY)
    with caplog.at_level(logging.INFO):
        await prune(store, ServerSettings())
    assert await left(store) == {"0a": 1, "0b": 1, "0c": 0}
    pruned = await store.find("0c")
    assert (pruned.state, pruned.pruned, bool(pruned.verdict)) == (IncidentState.JUDGED, NOON, True)
    whole, cut = [record.getMessage() for record in caplog.records if record.name.endswith("retention")]
    assert names(whole, "0d", "llama", "removed", "0.0 MiB", "400.0 days", "keep_s") and not names(whole, "captures")
    assert names(cut, "0c", "llama", "captures", "removed", "0.0 MiB", "31.0 days", "keep_captures_s")
    await prune(store, ServerSettings())
    assert await left(store) == {"0a": 1, "0b": 1, "0c": 0}, "nothing is due a second time"
    store.close()


async def test_by_size_the_oldest_captures_go_first_and_verdicts_last(where: Path | str) -> None:
    store = Store(where)
    for name, days in (("0c", 3), ("0b", 2), ("0a", 1)):
        await ended(store, name, days * DAY, size=100_000)
    await prune(store, replace(ALL, keep_bytes=250_000))
    assert await left(store) == {"0a": 1, "0b": 1, "0c": 0}
    await prune(store, replace(ALL, keep_bytes=10_000))
    assert await left(store) == {"0a": 0, "0b": 0, "0c": 0}, "three verdicts are below that"
    await prune(store, replace(ALL, keep_bytes=len((await store.find("0a")).verdict) + 1))
    assert await left(store) == {"0a": 0}
    await prune(store, ALL)
    assert await left(store) == {"0a": 0}, "0 is no bound"
    store.close()


async def test_what_has_not_ended_is_never_touched(where: Path | str, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(where)
    for name, state in (
        ("0a", IncidentState.SUSPECTED),
        ("0b", IncidentState.CAPTURING),
        ("0c", IncidentState.RECORDED),
    ):
        await ended(store, name, 1000 * DAY, size=50_000)
        await store.move(name, state, NOON - 1000 * DAY)
    await prune(store, replace(ServerSettings(), keep_bytes=1))
    assert await left(store) == {"0a": 1, "0b": 1, "0c": 1}
    assert names(caplog.text, "incidents", "still run")
    store.close()


async def test_a_large_incident_goes_in_bites_and_others_are_served_between_them(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(where)
    machines = 2 * ROWS + 10
    await ended(store, "0b", 40 * DAY, size=10, machines=machines)
    monkeypatch.setattr("hangdog_server.store.retention.BYTES", 10_000)
    await ended(store, "0a", 40 * DAY, size=5_001, machines=3)
    bites: list[int] = []

    async def pause(seconds: float) -> None:
        """Between two bites somebody asks, and sees at most one bite gone."""
        kept = sum((await left(store)).values())
        bites.append(machines + 3 - kept - sum(bites))

    monkeypatch.setattr("hangdog_server.store.retention.asyncio.sleep", pause)
    await prune(store, replace(ServerSettings(), keep_bytes=0))
    monkeypatch.undo()
    assert sorted(bite for bite in bites if bite) == [1, 1, 1, 10, ROWS, ROWS]
    store.close()


async def test_a_late_look_at_a_pruned_standstill_is_refused_and_the_verdict_stays(where: Path | str) -> None:
    store = Store(where)
    spooled = Spooled(store)
    first = OfflineCapture(
        "a", "1", "s", AnnouncedJob("llama", (Rank(0),)), NOON - 50 * DAY, 0, True, False, 2, 1.0, "", 0, b"x"
    )
    await spooled.fold(first, "0a", 60.0, NOON - 50 * DAY)
    await store.judged("0a", JUDGED, NOON - 50 * DAY)
    await prune(store, ServerSettings())
    assert (await spooled.fold(first, "0b", 60.0, NOON)).again, "it is still known, and never taken twice"
    late = await spooled.fold(replace(first, id="2", round=1), "0b", 60.0, NOON)
    assert "judged long ago" in late.refused and (await store.find("0a")).state is IncidentState.JUDGED
    other = await spooled.fold(replace(first, id="1", machine="b"), "0c", 60.0, NOON)
    assert other.incident == "0c", "another machine's look at it makes an incident of its own"
    await prune(store, replace(ALL, keep_s=45 * DAY))
    gone = await store.ask(lambda c: c.execute(sa.select(SPOOLED.c.incident)).scalars().all())
    assert list(gone) == ["0c"]
    store.close()


async def test_an_incident_that_is_opened_again_meanwhile_is_left_alone(where: Path | str) -> None:
    """A look is folded into it between two bites."""
    store = Store(where)
    await ended(store, "0a", 40 * DAY, machines=2 * ROWS)
    await ended(store, "0b", 39 * DAY)
    retention = Retention(store, ServerSettings(), lambda: NOON)
    pruning = asyncio.create_task(retention.once())
    while len((await store.recall("0a"))[1]) == 2 * ROWS:
        await asyncio.sleep(0)
    await store.move("0a", IncidentState.RECORDED, NOON)
    await pruning
    assert (await left(store))["0b"] == 0
    store.close()


async def test_the_file_shrinks(memory: Path) -> None:
    store = Store(memory / "s.db")
    for number in range(10):
        await ended(store, f"0{number}", (40 if number else 0) * DAY, size=100_000)
    shrink, given_back = store.shrink, []

    async def counted(pages: int) -> bool:
        given_back.append(await shrink(pages))
        return given_back[-1]

    store.shrink = counted  # type: ignore[method-assign]  # to see that it takes no more steps than it should
    await prune(store, ServerSettings())
    assert given_back == [False], "nine tenths of a MiB are one bite of 4 MiB"
    assert set((await left(store)).values()) == {0, 1}
    store.close()
    assert (memory / "s.db").stat().st_size < 400_000


async def test_a_running_server_prunes_by_itself_and_outlives_a_store_that_fails(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(memory / "s.db")
    await ended(store, "0a", 40 * DAY)
    store.close()
    once, calls = Retention.once, []

    async def failing(self: Retention) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise StoreFailed("the store failed: gone")
        await once(self)

    monkeypatch.setattr(Retention, "once", failing)
    async with stage(memory / "s.db", settings=replace(ServerSettings(), prune_s=0.01)) as on, asyncio.timeout(30):
        while (await left(on.store))["0a"]:
            await asyncio.sleep(0.01)


async def test_sizes_are_those_of_what_is_there(where: Path | str) -> None:
    store = Store(where)
    await ended(store, "0a", 1.0, size=1234, machines=3)
    sizes = sa.select(sa.func.sum(sa.func.length(CAPTURES.c.packed)))
    assert await store.ask(lambda c: c.execute(sizes).scalar()) == 3702
    counted = sa.text("SELECT captured_bytes, verdict_bytes FROM incidents")
    assert (await store.ask(lambda c: c.execute(counted).one())) == (3702, len((await store.find("0a")).verdict))
    store.close()


def test_operators_set_it_in_days_and_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[ServerSettings] = []

    async def serve(
        listen: str, where: str, judge: object, announce: object, settings: ServerSettings, *_: object
    ) -> None:
        given.append(settings)

    monkeypatch.setattr("hangdog_server.main.serve", serve)
    for options in ([], ["--keep", "10", "--keep-captures", "0.5", "--keep-size", "0"]):
        assert CliRunner().invoke(main, ["server", "--store", "s.db", *options]).exit_code == 0
    assert given[0] == ServerSettings()
    assert (given[1].keep_s, given[1].keep_captures_s, given[1].keep_bytes) == (10 * DAY, DAY / 2, 0)
