"""What agents showed of jobs, in the store, on both engines: written twice as once, by the leader only, closed by whoever comes next."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.operations.session_histories import SessionHistory, SessionStall
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.session_tracker import SessionTracker
from hangdog_server.grpc_api import operations_service
from hangdog_server.incidents import session_writer
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.session_writer import SessionWriter
from hangdog_server.store import leases
from hangdog_server.store import sessions as rows
from hangdog_server.store.leases import NotOurs
from hangdog_server.store.sessions import SessionRow, SessionState
from hangdog_server.store.store import Store
from support.real.postgres import Postgres
from support.servers.cast import NOON, PATIENT, stage, verdict

pytestmark = pytest.mark.parallel  # its slow tests measure no time

DAY = 86400.0
STILL = SessionStall(NOON + 50.0, NOON + 60.0)
LIFE = SessionRow("a1", "llama", NOON, NOON, True, SessionState.OPEN)


async def known(store: Store, true: Callable[[tuple[SessionHistory, ...]], bool]) -> tuple[SessionHistory, ...]:
    """The sessions, once they are what the test waits for, the earliest first."""
    async with asyncio.timeout(50):
        while not true(found := await sessions(store)):
            await asyncio.sleep(0.01)
    return tuple(sorted(found, key=lambda one: (one.began, one.until)))


async def sessions(store: Store, since: float = 0.0) -> tuple[SessionHistory, ...]:
    return (await store.ask(operations_service.past, since)).sessions


async def test_a_session_and_its_standstills_are_written_twice_as_once(where: Path | str) -> None:
    store = Store(where)
    for row in (LIFE, replace(LIFE, until=NOON + 60.0, stills=((1, STILL),))):
        await store.write_of("llama", rows.write, row)
        await store.write_of("llama", rows.write, row)
    assert await sessions(store) == (SessionHistory("llama", NOON, NOON + 60.0, True, False, (STILL,)),)
    over = replace(STILL, over=NOON + 90.0)
    ended = replace(LIFE, until=NOON + 200.0, state=SessionState.ENDED, stills=((1, over), (2, STILL)))
    await store.write_of("llama", rows.write, ended)
    await store.write_of("llama", rows.write, replace(LIFE, until=NOON + 900.0))
    known = SessionHistory("llama", NOON, NOON + 200.0, True, True, (over, STILL))
    assert await sessions(store) == (known,), "what is over stays over"
    assert await sessions(store, NOON + 201.0) == ()
    past = await store.ask(operations_service.past, NOON + 201.0, 10.0)
    assert past.sessions == (known,), "what follows soon may be its restart"
    store.close()


async def test_what_a_killed_server_left_open_is_closed_with_the_last_time_known(where: Path | str) -> None:
    store = Store(where)
    for row in (LIFE, replace(LIFE, id="b1", job="gpt"), replace(LIFE, id="c1", job="qwen")):
        await store.write_of(row.job, rows.write, row)
    assert await store.do(rows.stamp, ("a1", "c1"), NOON + 60.0) == frozenset()
    await store.write_of(
        "llama", rows.write, replace(LIFE, id="a2", began=NOON + 500.0, until=NOON + 500.0, start=False)
    )
    assert await store.do(rows.stamp, ("a1", "a2"), NOON + 560.0) == {"a1"}, "it is told that it is closed"
    assert {(one.job, one.began, one.until, one.end) for one in await sessions(store)} == {
        ("llama", NOON, NOON + 60.0, False),
        ("llama", NOON + 500.0, NOON + 560.0, False),
        ("gpt", NOON, NOON, False),
        ("qwen", NOON, NOON + 60.0, False),
    }
    store.close()


async def test_who_lost_the_lease_of_a_job_writes_nothing_of_its_life(where: Path | str) -> None:
    store = Store(where)
    store.fence("one")
    await store.write_of("llama", rows.write, LIFE)  # nobody leads it: as at its end
    await store.do(leases.take, ["llama"], "other", "", 60.0)
    for row in (replace(LIFE, state=SessionState.ENDED), replace(LIFE, id="a2")):
        with pytest.raises(NotOurs, match="llama") as caught:
            await store.write_of("llama", rows.write, row)
        assert caught.value.code == "not-the-leader"
    assert await sessions(store) == (SessionHistory("llama", NOON, NOON),)
    store.close()


async def test_sessions_are_forgotten_with_age_and_never_while_they_last(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "FORGOTTEN", 2)
    store = Store(where)
    for number in range(5):
        old = SessionRow(
            f"a{number}", f"j{number}", NOON - 500 * DAY, NOON - 400 * DAY, True, SessionState.ENDED, ((1, STILL),)
        )
        await store.write_of(old.job, rows.write, old)
    await store.write_of("gpt", rows.write, replace(LIFE, id="b", job="gpt", began=NOON - 500 * DAY, until=NOON - DAY))
    await store.write_of("llama", rows.write, replace(LIFE, id="c", state=SessionState.LOST))
    means = IncidentServices(Fleet(PATIENT), store, verdict, lambda: NOON)
    for keep_s, left in ((0.0, 7), (PATIENT.keep_s, 2)):
        kept = replace(PATIENT, keep_s=keep_s)
        await SessionWriter(means, SessionTracker(60.0), Leading(store, means.fleet, kept), kept).forget()
        assert len(await sessions(store)) == left
    assert {one.job for one in await sessions(store)} == {"gpt", "llama"}
    store.close()


@pytest.mark.slow  # two servers, one of which takes over from the other
async def test_of_several_servers_the_leader_writes_and_another_takes_over(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_writer, "TICK_S", 0.01)
    monkeypatch.setattr(session_writer, "STAMP_S", 0.05)
    where, settings, moment = server.database(), replace(PATIENT, lease_s=2.0), [NOON]
    async with AsyncExitStack() as stack:
        second = await stack.enter_async_context(stage(where, settings=settings, clock=lambda: moment[0]))
        async with stage(where, settings=settings, clock=lambda: moment[0]) as first:
            a = await stack.enter_async_context(first.agent("a"))
            await a.hello(llama=[0])
            (one,) = await known(first.store, lambda found: len(found) == 1)
            b = await stack.enter_async_context(second.agent("b"))
            await b.hello(llama=[1])
            await second.knows("b")
            moment[0] += 10.0
            (still,) = await known(first.store, lambda found: max(each.until for each in found) == moment[0])
            assert still.began == one.began, "the second one sees the job, too, and writes nothing"
            moment[0] += 20.0
        found = await known(second.store, lambda found: len(found) == 2)
        assert [(each.began, each.start, each.end) for each in found] == [
            (NOON, False, False),
            (NOON + 30.0, False, False),
        ]
        assert found[0].until <= NOON + 30.0
