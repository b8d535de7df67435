"""Whatever a receiver or the store does: who is told when, who waits for whom, and what is kept of it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.incident import IncidentState
from hangdog_models.verdict import Kind
from hangdog_server.notifications import notification_rows, notify_loop
from hangdog_server.notifications.notify_config import Subjects
from hangdog_server.store.store_errors import StoreFailed
from support.servers.notified import receiver, watched
from support.worded import names


async def test_a_receiver_that_is_away_is_tried_more_and_more_rarely_and_given_up(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path) as to:
        to.postman.fails = "connection refused"
        await to.opened("0a")
        await to.tick()
        for tries, wait_s in enumerate((5, 10, 20, 40, 80, 160, 300, 300), 1):
            await to.tick(wait_s - 1)
            assert len(to.postman.given) == tries
            await to.tick(1)
            assert len(to.postman.given) == tries + 1
        await to.tick(notify_loop.RECENT_S)
        await to.tick(1)
        assert len(to.postman.given) == 9, "it is given up"
        to.postman.fails = ""
        await to.judged("0a", Kind.NONE)
        await to.tick(1)
        assert [to.counted(outcome) for outcome in ("sent", "failed", "given_up", "left_out")] == [1, 9, 1, 0]
        assert (await to.subjects())[-1] is Subjects.JUDGED


async def test_a_receiver_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path, receiver(), receiver("mail")) as to:
        held = to.postman.held["chat"] = asyncio.Event()
        await to.opened("0a")
        await to.until(1, "mail")
        await to.judged("0a", Kind.NONE)
        await to.until(2, "mail")
        assert await to.subjects("chat") == [Subjects.OPENED], "its first message is still under way"
        held.set()
        await to.until(2, "chat")
    assert to.postman.titles("chat") == to.postman.titles("mail")


async def test_what_waits_for_those_who_hang_or_are_in_the_file_no_more_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification_rows, "AT_ONCE", 2)
    stay = receiver(), receiver("mail")
    async with watched(tmp_path / "s.db", tmp_path, *stay, receiver("gone")) as to:
        to.postman.held = dict.fromkeys(("chat", "gone"), asyncio.Event())
        for number in range(4):
            await to.opened(f"0{number}", job=f"job{number}")
            await to.until(number + 1, "mail")
        await to.notifying.close()
        to.postman.held, to.told = {}, replace(to.told, receivers=stay)
        to.begin()
        await to.opened("0z", job="later")
        for _ in range(4):
            await to.tick(1)
        for one in ("chat", "mail"):
            assert (await to.subjects(one))[-1] is Subjects.OPENED and names(to.postman.titles(one)[-1], "later")


async def test_a_storm_is_cut_and_says_so(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path, per_hour=3) as to:
        for number in range(6):
            await to.opened(f"0{number}", job=f"job{number}")
            await to.tick(1)
        for number, title in zip(range(3), to.postman.titles(), strict=True):
            assert names(title, f"job{number}")
        assert names(to.postman.given[-1][1].lines[-1], "3 messages", "hour")
        assert (to.counted("sent"), to.counted("left_out")) == (3, 3)
        await to.opened("0z", job="later")
        await to.tick(3597.5)  # what was sent is an hour old, what was left out is not, and does not count
    (title,) = to.postman.titles()[3:]
    assert names(title, "later")


async def test_while_the_store_is_away_nobody_is_told_and_then_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify_loop, "TICK_S", 0.01)
    async with watched(tmp_path / "s.db", tmp_path) as to:
        await to.opened("0a")
        await to.away()
        keeping = asyncio.create_task(to.notifying.keep())
        await to.reached(lambda: "cannot send notifications now" in caplog.text)
        assert to.postman.given == []
        await to.away(False)
        await to.reached(lambda: len(to.postman.given) == 1)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_what_came_of_a_message_is_noted_should_the_store_be_away_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify_loop, "NOTED_AGAIN_S", 0.01)
    async with watched(tmp_path / "s.db", tmp_path) as to:
        held = to.postman.held["chat"] = asyncio.Event()
        await to.opened("0a")
        await to.until(1, "chat")
        await to.away()
        held.set()
        await to.reached(lambda: "chat: the result of sending is not stored" in caplog.text)
        await to.away(False)
        await to.tick()
        to.begin()
        await to.tick(1)
        assert await to.subjects() == [Subjects.OPENED]


async def test_a_disk_that_fills_while_the_stall_is_told_does_not_hold_up_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify_loop, "NOTED_AGAIN_S", 0.01)
    async with watched(tmp_path / "s.db", tmp_path) as to:
        held = to.postman.held["chat"] = asyncio.Event()
        await to.opened("0a")
        await to.until(1, "chat")
        await to.away()
        held.set()
        await to.reached(lambda: "chat: the result of sending is not stored" in caplog.text)
        judged = replace(await to.on.store.find("0a"), state=IncidentState.JUDGED, kind=Kind.MACHINE, evict=("a",))
        to.on.store.unwritten["0a"] = judged
        with pytest.raises(StoreFailed):
            await to.notifying.tick()
        await to.reached(lambda: len(to.postman.given) == 2 and not to.notifying._unwritten_tasks)
        del to.on.store.unwritten["0a"]
        await to.away(False)
        await to.tick()
    stands, verdict = to.postman.titles()
    assert names(stands, "llama", "stand still") and names(verdict, "llama", Kind.MACHINE)


async def test_what_was_sent_is_forgotten_with_its_incidents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify_loop, "TICK_S", 0.01)
    async with watched(tmp_path / "s.db", tmp_path) as to:
        to.begin(keep_s=30 * 86400.0, prune_s=0.0)
        keeping = asyncio.create_task(to.notifying.keep())
        await to.opened("0a")
        await to.reached(lambda: bool(to.postman.given))
        to.on.now += 29 * 86400.0
        await to.opened("0b")
        await to.reached(lambda: len(to.postman.given) == 2)
        to.on.now += 2 * 86400.0
        async with asyncio.timeout(60):
            while len(known := await to.on.store.ask(notification_rows.last, ["0a", "0b"])) == 2:
                await asyncio.sleep(0.01)
        assert known.keys() == {("0b", "chat")}
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
