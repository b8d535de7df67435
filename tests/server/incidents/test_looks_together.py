"""Looks that came in one message are looks like any other: judged, kept, asked after, and refused where they cannot be."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from hangdog_models.stack import ProcessState, ProcessTrace
from hangdog_proto.codec import traces
from hangdog_proto.codec.dedup import Packer, unpack
from hangdog_proto.codec.rounds import MOST_EARLIER, same_but_for_counts
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.replay import StoredRound, opened
from hangdog_server.store.captures import RawCapture, unfolded
from hangdog_server.store.store import Store
from support.servers.cast import PATIENT, Listener, cluster, failed, stage, trainer

THRICE = replace(PATIENT, rounds=3)


def aged(rank: int, cpu_s: float, function: str = "step") -> ProcessTrace:
    return structs.replace(trainer(rank, function), state=ProcessState(1000 + rank, "S", cpu_s=cpu_s))


def joined(packer: Packer, order: pb.CaptureOrder, middle: ProcessTrace, last: ProcessTrace) -> pb.Captured:
    """The second and third look in one message."""
    captures = packer.pack([middle]), packer.pack([last])
    captured = pb.Captured(order=order.order, round=2, capture=captures[1], last=True)
    counted = same_but_for_counts(*captures) or pb.Before(capture=captures[0])
    counted.round = 1
    captured.before.append(counted)
    return captured


async def pages(store: Store, incident: str) -> list[RawCapture]:
    """What is kept of an incident, as it is handed out: a row at a time."""
    found: list[RawCapture] = []
    after = "", -1
    while page := await store.page(incident, after, 1):
        found += [look for one in page for look in unfolded(one)]
        after = page[-1].machine, page[-1].round
    return found


def stored(file: Path) -> list[tuple[str, int, bool]]:
    """The rows of all captures: machine, round, whether looks are kept beside it."""
    with closing(sqlite3.connect(file)) as database:
        return database.execute("SELECT machine, round, before IS NOT NULL FROM captures ORDER BY 1, 2").fetchall()


@pytest.mark.parametrize("function", ["step", "other"])
async def test_looks_of_one_message_are_judged_and_kept_one_by_one(tmp_path: Path, function: str) -> None:
    listener, packer = Listener(), Packer()
    looks = [aged(0, 1.0), aged(0, 2.0, function), aged(0, 3.0)]
    async with stage(tmp_path / "s.db", listener, THRICE) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot(interval_s=0.01))
        order = await a.order()
        # what the looks name is asked for, that of the one in the middle too
        await a.say(captured=pb.Captured(order=order.order, round=0, capture=packer.pack(looks[:1])))
        await a.say(captured=joined(packer, order, *looks[1:]))
        while not asking.done():
            message = asyncio.ensure_future(a.next())
            await asyncio.wait({message, asking}, return_when=asyncio.FIRST_COMPLETED)
            if not message.done():
                message.cancel()
                break
            for pieces in packer.find(message.result().missing_pieces.digests, 0):
                await a.say(pieces=pieces)
        steps = await asking
        assert not failed(steps) and listener.snapshot is not None
        shown = [round_.traces[0] for round_ in listener.snapshot.rounds]
        assert [trace.state.cpu_s for trace in shown if trace.state] == [1.0, 2.0, 3.0]
        assert [trace.threads[0].frames[1].function for trace in shown] == ["step", function, "step"]
        assert (shown[0].threads is shown[1].threads) == (function == "step")
        _, kept = await on.store.recall(steps[0].incident)
        assert (await on.store.kept(steps[0].incident))[1] == len(kept)
        assert await pages(on.store, steps[0].incident) == list(kept)
    rows = [one for one in stored(tmp_path / "s.db") if one[0] == "a"]
    assert rows == ([("a", 0, 0), ("a", 2, 1)] if function == "step" else [("a", 0, 0), ("a", 1, 0), ("a", 2, 0)])
    dictionary, captures = opened(StoredRound(one.machine, one.round, one.packed) for one in kept)
    again = [unpack(pb.Capture.FromString(capture.packed), dictionary) for capture in captures]
    assert again == [(look,) for look in looks]


@pytest.mark.parametrize("large", [False, True])
async def test_in_a_large_cluster_the_first_look_may_come_with_the_last(tmp_path: Path, large: bool) -> None:
    listener, looks = Listener(), [aged(0, 1.0), aged(0, 2.0), aged(0, 3.0)]
    settings = replace(THRICE, heartbeat_s=1.0, beats_per_s=0.001, heartbeat_most_s=60.0) if large else THRICE
    async with stage(tmp_path / "s.db", listener, settings) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot(interval_s=0.01))
        order = await a.order()
        assert order.together == large
        captures = [traces.pack([look]) for look in looks]
        captured = pb.Captured(order=order.order, round=2, capture=captures[2], last=True)
        for number, capture in enumerate(captures[:2]):
            captured.before.add(round=number, capture=capture)
        await a.say(captured=captured)
        await asking
    assert listener.snapshot is not None
    shown = [round_.traces[0] for round_ in listener.snapshot.rounds]
    assert [trace.state.cpu_s for trace in shown if trace.state] == [1.0, 2.0, 3.0]


async def test_looks_that_cannot_be_are_not_believed_and_the_others_stand(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, THRICE) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot(interval_s=0.01))
        order = await a.order()
        captured = pb.Captured(order=order.order, round=2, capture=pb.Capture(), last=True)
        captured.capture.traces.add(rank=0, role="trainer", pid=7)
        captured.before.add(round=0, capture=captured.capture)
        captured.before.add(round=1, cpu_s=[1.0, 2.0])
        captured.before.add(round=9, capture=captured.capture)
        await a.say(captured=captured)
        await asking
    assert listener.snapshot is not None
    unreadable = listener.snapshot.account.unreadable
    assert list(unreadable) == ["a, look 1"] and "of other processes" in unreadable["a, look 1"]
    assert [round_.traces[0].missing is None for round_ in listener.snapshot.rounds] == [True, False, True]


async def test_a_look_stands_though_the_one_it_came_with_had_come_before(tmp_path: Path) -> None:
    listener, looks = Listener(), [aged(0, at) for at in (1.0, 2.0, 3.0)]
    async with stage(tmp_path / "s.db", listener, THRICE) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot(interval_s=0.01))
        order = await a.order()
        captures = [traces.pack([look]) for look in looks]
        for number in (0, 2):
            await a.say(captured=pb.Captured(order=order.order, round=number, capture=captures[number]))
        again = pb.Captured(order=order.order, round=2, capture=captures[2])
        again.before.add(round=1)
        await a.say(captured=again)
        steps = await asking
        assert [one.round for one in await pages(on.store, steps[0].incident)] == [0, 1, 2]
    assert listener.snapshot is not None and len(listener.snapshot.rounds) == 3
    assert stored(tmp_path / "s.db") == [("a", 0, 0), ("a", 1, 0), ("a", 2, 0)]


async def test_a_light_look_comes_alone(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", settings=replace(THRICE, patience_s=0.2)) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot(rounds=1, light=True))
        order = await a.order()
        await a.say(captured=joined(Packer(), order, trainer(0), trainer(0)))
        steps = await asking
        assert (await on.store.kept(steps[0].incident))[1] == 0


async def test_an_agent_that_says_too_many_at_once_is_shown_out(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", settings=THRICE) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot(interval_s=0.01))
        order = await a.order()
        befores = [pb.Before(round=at) for at in range(MOST_EARLIER + 1)]
        await a.say(captured=pb.Captured(order=order.order, round=2, before=befores))
        code, words = await a.end()
        assert f"{MOST_EARLIER} at most" in words, code
        asking.cancel()
