"""Looks by digests over the true wire: what nobody told is asked for once, and a look waits for it no longer than it must."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.stack import ProcessTrace, Reason
from hangdog_proto.codec.dedup import Packer, unpack
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.missing_pieces import MissingPieces
from hangdog_server.incidents.replay import StoredRound, opened
from hangdog_server.protocol.commands import Need
from support.servers.cast import PATIENT, Agent, Listener, Stage, cluster, failed, stage, texts, trainer
from support.worded import names

pytestmark = [pytest.mark.slow, pytest.mark.parallel]


def look(order: pb.CaptureOrder, packer: Packer, *traces: ProcessTrace, number: int = 0) -> pb.Captured:
    return pb.Captured(order=order.order, round=number, capture=packer.pack(traces), last=number == order.rounds - 1)


async def tell(agent: Agent, packer: Packer) -> int:
    """Answers the next question; how many pieces were asked for."""
    message = await agent.next()
    assert message.HasField("missing_pieces"), message
    (pieces,) = packer.find(message.missing_pieces.digests, 0)
    await agent.say(pieces=pieces)
    return len(pieces.pieces)


async def test_what_is_told_once_is_not_asked_for_again(tmp_path: Path) -> None:
    listener, packer = Listener(), Packer()
    async with stage(tmp_path / "s.db", listener) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        asking = asyncio.create_task(on.snapshot())
        await a.say(captured=look(await a.order(), packer, trainer(0), trainer(1, "other")))
        assert await tell(a, packer) == 2  # threads, which share their first frame
        assert await tell(a, packer) == 3
        await b.say(captured=look(await b.order(), Packer(), trainer(2), trainer(3)))  # this one is asked for nothing
        steps = await asking
        assert texts(steps)[-3] == "2 of 2 machines answered" and not failed(steps)
        assert listener.snapshot is not None
        traces = listener.snapshot.rounds[0].traces
        assert [trace.threads[0].frames[1].function for trace in traces] == ["step", "other", "step", "step"]
        assert traces[0].threads is traces[3].threads
        _, kept = await on.store.recall(steps[0].incident)
    dictionary, captures = opened(StoredRound(one.machine, one.round, one.packed) for one in kept)
    again = [trace for capture in captures for trace in unpack(pb.Capture.FromString(capture.packed), dictionary)]
    assert again == [trainer(0), trainer(1, "other"), trainer(2), trainer(3)]


async def test_one_of_those_who_name_a_thing_is_asked_and_if_it_is_gone_another(tmp_path: Path) -> None:
    settings, packer = replace(PATIENT, ask_again_s=0.2), Packer()
    async with stage(tmp_path / "s.db", settings=settings) as on, cluster(on, a=[0, 1]) as (a,):
        async with cluster(on, b=[2, 3]) as (b,):
            asking = asyncio.create_task(on.snapshot())
            await b.say(captured=look(await b.order(), Packer(), trainer(2), trainer(3)))
            assert (await b.next()).HasField("missing_pieces")
            await a.say(captured=look(await a.order(), packer, trainer(0), trainer(1)))
            await b.hang_up()
            assert await tell(a, packer) == 1
            assert await tell(a, packer) == 2
        assert not failed(await asking)


async def test_who_has_forgotten_says_so_and_another_is_asked_at_once(tmp_path: Path) -> None:
    settings, packer = replace(PATIENT, ask_again_s=60.0, hold_s=60.0), Packer()
    async with stage(tmp_path / "s.db", settings=settings) as on, cluster(on, a=[0], b=[1]) as (a, b):
        asking = asyncio.create_task(on.snapshot())
        await a.say(captured=look(await a.order(), Packer(), trainer(0)))
        need = (await a.next()).missing_pieces
        await b.say(captured=look(await b.order(), packer, trainer(1)))
        await named(on, 1)
        await a.say(pieces=pb.Pieces(gone=need.digests))
        assert await tell(b, packer) == 1
        assert await tell(b, packer) == 2
        assert not failed(await asking)


async def test_a_look_that_nobody_explains_is_missing_and_holds_up_nobody(tmp_path: Path) -> None:
    settings = replace(PATIENT, ask_again_s=0.1, hold_s=0.5)
    async with stage(tmp_path / "s.db", settings=settings) as on, cluster(on, a=[0], b=[1]) as (a, b):
        asking = asyncio.create_task(on.snapshot())
        await a.say(captured=look(await a.order(), Packer(), trainer(0, "secret")))
        await b.answer(await b.order(), trainer(1))
        (why,) = failed(await asking).values()
        assert names(why, Reason.NO_EVIDENCE, "of a", "not readable", "names a thread")


async def test_the_looks_of_a_machine_stay_in_their_order(tmp_path: Path) -> None:
    listener, packer = Listener(), Packer()
    settings = replace(PATIENT, rounds=2)
    async with stage(tmp_path / "s.db", listener, settings) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot())
        order = await a.order()
        await a.say(captured=look(order, packer, trainer(0)))
        await a.answer(order, trainer(0, "other"), look=1, last=True)  # in the long form: it waits for nothing itself
        await tell(a, packer)
        await tell(a, packer)
        assert not failed(await asking)
    assert listener.snapshot is not None and len(listener.snapshot.rounds) == 2


async def test_what_was_not_asked_for_is_not_believed(tmp_path: Path) -> None:
    packer, other = Packer(), Packer()
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0]) as (a,):
        capture = other.pack([trainer(7, "poison")])
        (unasked,) = other.find(b"".join(record[:16] for record in [capture.alike[0].threads]), 0)
        await a.say(pieces=unasked)
        asking = asyncio.create_task(on.snapshot())
        await a.say(captured=look(await a.order(), packer, trainer(0)))
        assert await tell(a, packer) == 1
        assert await tell(a, packer) == 2
        assert not failed(await asking)
        assert len(on.dictionary) == 3


async def named(on: Stage, waiting: int) -> None:
    """Returns once so many further looks had the time to arrive."""
    for _ in range(waiting):
        await on.machines()
        await asyncio.sleep(0.1)


async def test_a_bug_met_in_one_look_that_waited_holds_up_no_other() -> None:
    read: list[str] = []

    async def deliver(machine: str, captured: pb.Captured) -> None:
        read.append(machine)
        if machine == "a":
            raise RecursionError

    packer, asked = Packer(), asyncio.Queue[bytes]()

    def send(machine: str, need: Need) -> bool:
        asked.put_nowait(need.digests)
        return True

    asking = MissingPieces(PieceCache(), send, deliver, PATIENT)
    keeping = asyncio.create_task(asking.keep())
    try:
        for machine, rank in (("a", 0), ("b", 1)):
            await asking.take(machine, pb.Captured(capture=packer.pack([trainer(rank)])))
        async with asyncio.timeout(30):
            for _ in range(2):  # the thread, then its frames
                (pieces,) = packer.find(await asked.get(), 0)
                asking.take_pieces("a", pieces)
            while len(read) < 2:
                await asyncio.sleep(0.01)
        assert sorted(read) == ["a", "b"] and not keeping.done()
        await asking.take("b", pb.Captured(capture=packer.pack([trainer(1)])))
        assert read[-1] == "b" and len(read) == 3
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
