"""What people are told of stands in the store first: killed with -9 or with a second server beside it, nothing is told twice."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hangdog_models.verdict import Kind
from hangdog_server.notifications import notification_rows
from hangdog_server.notifications.message import Message
from hangdog_server.notifications.notification_rows import Note, Sent
from hangdog_server.notifications.notify_config import Subjects
from hangdog_server.store.store import Store
from support.real.postgres import Postgres
from support.servers import notifying_and_dying
from support.servers.notified import watched
from support.worded import names

pytestmark = pytest.mark.parallel  # its slow tests measure no time

NOTE = Note("0a", "chat", "judged", "m1", Message("title \0", ("line",), "https://head/"))


def lived(store: Path, folder: Path, dies: str) -> int:
    command = [sys.executable, notifying_and_dying.__file__, str(store), str(folder), dies]
    environ = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environ, check=False, timeout=100).returncode


async def test_each_state_of_a_subject_is_noted_once(where: Path | str) -> None:
    store = Store(where)
    assert await store.do(notification_rows.note, [NOTE, NOTE], 10.0, 5) == [Sent.WAITING]
    assert await store.do(notification_rows.note, [NOTE], 11.0, 5) == []
    [row] = await store.ask(notification_rows.due, 12.0, ["chat"])
    assert (row.message, row.state, row.tries, row.unsure) == (NOTE.message, Sent.WAITING, 0, False)
    assert await store.do(notification_rows.begin, row, 12.0)
    assert not await store.do(notification_rows.begin, row, 12.0), "somebody has begun"
    [cut] = await store.ask(notification_rows.due, 13.0, ["chat"])
    assert cut.state is Sent.SENDING and await store.do(notification_rows.begin, cut, 13.0)
    assert not await store.do(notification_rows.begin, cut, 13.0), "somebody has begun anew"
    [again] = await store.ask(notification_rows.due, 14.0, ["chat"])
    assert (again.tries, again.unsure) == (2, True)
    await store.do(notification_rows.end, again, Sent.SENT, "", 0.0, 14.0)
    await store.do(notification_rows.end, cut, Sent.WAITING, "too late", 0.0, 15.0)
    assert await store.ask(notification_rows.due, 1e9, ["chat"]) == ()
    assert await store.ask(notification_rows.last, ["0a", "0b"]) == {("0a", "chat"): (1, "m1")}
    await store.do(notification_rows.forget, 11.0)
    assert await store.ask(notification_rows.last, ["0a"]) == {}
    store.close()


@pytest.mark.slow
async def test_what_was_half_sent_is_sent_once_more_and_says_so(memory: Path) -> None:
    store = memory / "s.db"
    async with watched(store, memory) as to:
        await to.opened("0a")
    assert lived(store, memory, "before") == -signal.SIGKILL
    assert lived(store, memory, "never") == 0
    (first,) = (memory / "sent").read_text().splitlines()
    assert first.startswith("(perhaps again) ") and names(first, "llama")
    async with watched(store, memory) as to:
        await to.judged("0a", Kind.NONE)
    for _ in range(2):
        assert lived(store, memory, "after") == -signal.SIGKILL
    assert lived(store, memory, "never") == 0
    title, again = (memory / "sent").read_text().splitlines()[1:]
    assert names(title, "llama") and again == f"(perhaps again) {title}" and first != again


async def test_of_two_servers_one_tells(server: Postgres, memory: Path) -> None:
    where = server.database()
    async with watched(where, memory / "1") as one, watched(where, memory / "2") as other:
        for number in range(3):
            await one.opened(f"0{number}", job=f"job{number}")
            await asyncio.gather(*(to.tick() for to in (one, other, one, other)))
            await one.judged(f"0{number}", Kind.NONE)
            await asyncio.gather(*(to.tick() for to in (other, one, other, one)))
        titles = sorted(one.postman.titles() + other.postman.titles())
        assert len(titles) == 6 and len(set(titles)) == 6
        first, second = (one, other) if one.postman.given else (other, one)
        assert second.postman.given == []
        held = first.postman.held["chat"] = asyncio.Event()
        await first.opened("0z", job="later")
        await first.notifying.tick()
        await first.until(7, "chat")
        await second.tick()
        assert second.postman.given == [], "it is being sent"
        held.set()
        await first.tick()
        await first.notifying.close()  # it gives the lease back, so that the other need not wait
        await second.opened("0y", job="last")
        await second.tick()
        assert await second.subjects() == [Subjects.OPENED]
    assert names(second.postman.titles()[0], "last")


@pytest.mark.parametrize("per_hour", [1, 2])
async def test_what_is_left_out_is_not_made_up_for(memory: Path, per_hour: int) -> None:
    store = Store(memory / "s.db")
    notes = [Note(f"0{number}", "chat", "opened", "o", NOTE.message) for number in range(4)]
    waiting = [Sent.WAITING] * per_hour
    assert await store.do(notification_rows.note, notes, 10.0, per_hour) == waiting + [Sent.LEFT_OUT] * (4 - per_hour)
    assert len(await store.ask(notification_rows.due, 11.0, ["chat"])) == per_hour
    assert await store.do(notification_rows.note, notes, 4000.0, per_hour) == []
    store.close()
