"""Looks of one order in as few messages as they fit, none held back for long, none lost."""

import asyncio
from collections.abc import AsyncGenerator, Iterable

import pytest

from hangdog_agent.connection.batch import KEPT_S, together
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, ProcessState, ProcessTrace, Thread
from hangdog_proto.codec.dedup import Packer
from hangdog_proto.generated import hangdog_pb2 as pb

PACKER = Packer()


def look(cpu_s: float = 1.0, function: str = "step") -> pb.Capture:
    thread = Thread("MainThread", 7, (Frame(function, "train.py", 1),))
    return PACKER.pack([ProcessTrace(Rank(0), pid=7, threads=(thread,), state=ProcessState(7, "S", cpu_s=cpu_s))])


async def said(messages: Iterable[pb.Captured]) -> AsyncGenerator[pb.Captured, None]:
    for message in messages:
        yield message


def sent(
    looks: list[pb.Captured], rounds: int, interval_s: float = 2.0, most: int = 0, all_: bool = False
) -> list[pb.Captured]:
    async def gathered() -> list[pb.Captured]:
        return [message async for message in together(said(looks), rounds, interval_s, most, all_)]

    return asyncio.run(gathered())


def ordered(*captures: pb.Capture) -> list[pb.Captured]:
    last = len(captures) - 1
    return [pb.Captured(order="o", round=at, capture=one, last=at == last) for at, one in enumerate(captures)]


def numbers(messages: list[pb.Captured]) -> list[list[int]]:
    return [[*(before.round for before in message.before), message.round] for message in messages]


def test_the_first_look_goes_at_once_and_the_others_with_the_last() -> None:
    first, last = sent(ordered(look(1.0), look(2.0), look(3.0)), 3)
    assert numbers([first, last]) == [[0], [1, 2]]
    assert not first.before and last.last
    (before,) = last.before
    assert list(before.cpu_s) == [2.0] and not before.HasField("capture"), "all else is what the last look shows"


@pytest.mark.parametrize(("rounds", "expected"), [(1, [[0]]), (3, [[0, 1, 2]]), (5, [[0, 1, 2], [3, 4]])])
def test_in_a_large_cluster_the_first_look_goes_with_the_others(rounds: int, expected: list[list[int]]) -> None:
    messages = sent(ordered(*(look(at) for at in range(rounds))), rounds, all_=True)
    assert numbers(messages) == expected and messages[-1].last


async def test_a_look_that_hangs_holds_up_none_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdog_agent.connection.batch.KEPT_S", 0.1)
    hangs = asyncio.Event()

    async def looks() -> AsyncGenerator[pb.Captured, None]:
        first, *others = ordered(look(), look(), look())
        yield first
        await hangs.wait()
        for other in others:
            yield other

    messages = together(looks(), 3, 0.01, 0, all_=True)
    assert numbers([await anext(messages)]) == [[0]]
    hangs.set()
    assert numbers([message async for message in messages]) == [[1, 2]]


async def test_who_hears_no_more_ends_the_look_that_is_being_taken() -> None:
    ended = asyncio.Event()

    async def looks() -> AsyncGenerator[pb.Captured, None]:
        try:
            yield pb.Captured(order="o")
            await asyncio.Event().wait()
        finally:
            ended.set()

    messages = together(looks(), 3, 2.0, 0)
    await anext(messages)
    await messages.aclose()
    assert ended.is_set()


def test_a_look_that_shows_something_else_travels_in_full() -> None:
    _, last = sent(ordered(look(), look(2.0, "other"), look(3.0)), 3)
    assert last.before[0].capture == look(2.0, "other") and not last.before[0].cpu_s


@pytest.mark.parametrize(
    ("rounds", "interval_s", "expected"),
    [
        (1, 2.0, [[0]]),
        (2, 2.0, [[0], [1]]),
        (6, 2.0, [[0], [1, 2, 3], [4, 5]]),
        (3, KEPT_S + 1, [[0], [1], [2]]),
        (4, 0.0, [[0], [1, 2, 3]]),
    ],
)
def test_no_look_is_held_back_for_long(rounds: int, interval_s: float, expected: list[list[int]]) -> None:
    assert numbers(sent(ordered(*(look() for _ in range(rounds))), rounds, interval_s)) == expected


def test_what_does_not_fit_into_one_message_goes_in_several() -> None:
    looks = ordered(look(), look(1.0, "one"), look(2.0, "two"))
    most = looks[2].capture.ByteSize() + 10
    assert numbers(sent(looks, 3, most=most)) == [[0], [1], [2]]
    assert numbers(sent(looks, 3, most=10 * most)) == [[0], [1, 2]]


def test_what_was_held_back_goes_with_the_word_that_the_job_is_gone_or_by_itself() -> None:
    gone = [*ordered(look(), look(2.0))[:1], pb.Captured(order="o", round=1, capture=look(2.0))]
    assert numbers(sent([*gone, pb.Captured(order="o", round=2, last=True)], 4)) == [[0], [1, 2]]
    assert numbers(sent(gone, 4)) == [[0], [1]]


def test_messages_behind_the_last_look_go_as_they_are() -> None:
    looks = [*ordered(look(), look(), look()), pb.Captured(order="o", round=3, last=True)]
    assert numbers(sent(looks, 3)) == [[0], [1, 2], [3]]
