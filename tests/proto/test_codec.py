"""The codec's laws: what was packed comes back, and whatever a message claims, only our own error comes of it."""

import contextlib
import math
from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.stack import Frame, ProcessState, ProcessTrace, Thread
from hangdog_proto.codec.traces import TraceLimits, pack, unpack
from hangdog_proto.generated import hangdog_pb2 as pb
from support.cases.traced import traces
from support.refused import refused

MAIN = Thread("MainThread", 7, (Frame("main", "train.py", 3), Frame("poll", "", 0, "libc.so.6")))


def trainer(rank: int, *threads: Thread) -> ProcessTrace:
    return ProcessTrace(Rank(rank), threads=threads)


@given(st.lists(traces, max_size=5).map(tuple))
def test_unpacking_gives_back_what_was_packed(looked: tuple[ProcessTrace, ...]) -> None:
    wire = pack(looked).SerializeToString()
    assert unpack(pb.Capture.FromString(wire)) == looked


@given(st.binary(max_size=200))
def test_whatever_bytes_arrive_only_our_error_comes_of_them(garbage: bytes) -> None:
    capture = pb.Capture()
    try:
        capture.ParseFromString(garbage)
    except DecodeError:  # grpc refuses such a message before we see it
        return
    with contextlib.suppress(UnreadableEvidence):
        unpack(capture)


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=6),
)
def test_wild_indexes_and_enums_are_refused_or_meant(stacks: list[list[int]], threads: list[tuple[int, int]]) -> None:
    capture = pb.Capture(frames=[pb.Frame(function=f"f{n}") for n in range(5)])
    for stack in stacks:
        capture.stacks.add(frames=stack)
    trace = capture.traces.add(rank=1, role="trainer")
    for index, active in threads:
        trace.threads.add(stack=index, active=pb.Tri.ValueType(active))
    meant = all(n < 5 for stack in stacks for n in stack) and all(
        index < len(stacks) and active < 3 for index, active in threads
    )
    if meant:
        assert len(unpack(capture)[0].threads) == len(threads)
    else:
        with pytest.raises(UnreadableEvidence):
            unpack(capture)


def test_each_distinct_frame_and_stack_travels_once() -> None:
    capture = pack([trainer(rank, MAIN, MAIN) for rank in range(64)])
    assert (len(capture.frames), len(capture.stacks), len(capture.traces)) == (2, 1, 64)


def test_a_shared_stack_is_made_once() -> None:
    first, second = unpack(pack([trainer(0, MAIN), trainer(1, MAIN)]))
    assert first.threads[0].frames is second.threads[0].frames


def test_a_native_frame_stays_native_without_the_name_of_its_library() -> None:
    thread = Thread(None, 1, (Frame("??", "", 0, ""), Frame("poll", "", 0, "libc.so.6"), Frame("run", "t.py", 1)))
    assert [frame.native for frame in unpack(pack([trainer(0, thread)]))[0].threads[0].frames] == [True, True, False]


def test_text_that_is_no_utf8_does_not_fail_a_look() -> None:
    state = ProcessState(5, "S", cmdline=b"python \xff.py".decode(errors="surrogateescape"))
    (back,) = unpack(pack([ProcessTrace(Rank(0), pid=5, state=state)]))
    assert back.state is not None and back.state.cmdline == "python ?.py"


def test_numbers_the_wire_cannot_hold_become_unknown() -> None:
    thread = Thread(None, -1, (Frame("f", "f.py", 1 << 40),))
    (back,) = unpack(pack([ProcessTrace(Rank(0), pid=1 << 40, threads=(thread,))]))
    assert (back.pid, back.threads[0].tid, back.threads[0].frames[0].line) == (None, 0, 0)


def tampered(change: Callable[[pb.Capture], object]) -> pb.Capture:
    capture = pack([ProcessTrace(Rank(0), pid=5, threads=(MAIN,), state=ProcessState(5, "S"))])
    change(capture)
    return capture


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        (lambda c: c.stacks[0].frames.append(2), "damaged-message", "frame 2"),
        (lambda c: setattr(c.traces[0].threads[0], "stack", 1), "damaged-message", "stack 1"),
        (lambda c: setattr(c.traces[0], "rank", MAX_RANK + 1), "out-of-range", str(MAX_RANK + 1)),
        (lambda c: setattr(c.traces[0], "role", ""), "damaged-message", "role"),
        (lambda c: setattr(c.traces[0].missing, "reason", "bored"), "unknown-kind", "'bored'"),
        (lambda c: setattr(c.traces[0].threads[0], "gil", 3), "unknown-kind", "3"),
        (lambda c: setattr(c.traces[0].state, "cpu_s", math.nan), "not-a-number", "process 5"),
        (lambda c: setattr(c.traces[0].state, "ran_s", math.inf), "not-a-number", "process 5"),
        (lambda c: setattr(c.frames[0], "function", "x" * 70_000), "too-long", "70000"),
    ],
)
def test_a_message_that_cannot_be_true_is_refused(
    change: Callable[[pb.Capture], object], code: str, value: str
) -> None:
    with refused(code, UnreadableEvidence, value):
        unpack(tampered(change))


@pytest.mark.parametrize(
    ("bounds", "counted"),
    [
        (TraceLimits(processes=1), "2 processes, the bound is 1"),
        (TraceLimits(threads=3), "4 threads, the bound is 3"),
        (TraceLimits(distinct=1), "2 distinct frames"),
        (TraceLimits(depth=1), "2 frames in one stack"),
        (TraceLimits(frames=7), "8 frames of all threads"),
    ],
)
def test_counts_over_the_bounds_are_refused(bounds: TraceLimits, counted: str) -> None:
    with refused("too-many", UnreadableEvidence, counted):
        unpack(pack([trainer(0, MAIN, MAIN), trainer(1, MAIN, MAIN)]), bounds)


def test_a_small_message_that_unfolds_into_a_large_one_is_refused_before_it_unfolds() -> None:
    """Ten thousand threads that share one stack of ten thousand frames: 130 kB on the wire, 10^8 frames to walk."""
    deep = Thread(None, 1, (Frame("f", "f.py", 1),) * 10_000)
    capture = pack([trainer(0, deep)])
    for _ in range(9_999):
        capture.traces[0].threads.add()
    assert capture.ByteSize() < 200_000
    with refused("too-many", UnreadableEvidence, "100000000 frames of all threads"):
        unpack(capture)
