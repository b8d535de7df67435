"""Captures by digests: what was packed comes back once the pieces were told, and nothing else is believed."""

import contextlib
from collections.abc import Iterable
from itertools import permutations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Reason, Thread
from hangdog_proto.codec import traces as codec
from hangdog_proto.codec.dedup import Packer, unpack
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.codec.pieces import KernelView, SharedThread, digest, packed, unpacked
from hangdog_proto.generated import hangdog_pb2 as pb
from support.cases.traced import plausible, traces
from support.refused import refused

NAMES = ("MainThread", *(f"t{number}" for number in range(1, 10)))


def told(packer: Packer, *captures: pb.Capture) -> PieceCache:
    """A dictionary that asked for everything it lacked, as a server does; how often it had to is bounded."""
    dictionary = PieceCache()
    for capture in captures:
        for _ in range(2):  # the threads and faces, then their frames
            for pieces in packer.find(b"".join(sorted(dictionary.missing(capture))), 500):
                assert not pieces.gone
                dictionary.add(pieces.pieces)
        assert not dictionary.missing(capture)
    return dictionary


def written(found: Iterable[ProcessTrace]) -> list[str]:
    return sorted(map(repr, found))


def crowd(ranks: int, *, threads: int = 10, depth: int = 30) -> list[ProcessTrace]:
    """Ranks that look the same, as they do in a hang."""
    stacks = [tuple(Frame(f"f{n}", f"/opt/app/module_{t}.py", n) for n in range(depth)) for t in range(threads)]
    return [
        ProcessTrace(
            Rank(rank),
            pid=1000 + rank,
            threads=tuple(Thread(NAMES[t], 1000 + rank + t, stacks[t], False, False) for t in range(threads)),
            state=ProcessState(1000 + rank, "S", "futex_wait", "202", 1.5 + rank, "python", "python train.py " * 20),
        )
        for rank in range(ranks)
    ]


@given(st.lists(st.one_of(plausible, traces), max_size=5))
def test_unpacking_gives_back_what_was_packed(looked: list[ProcessTrace]) -> None:
    packer = Packer()
    capture = pb.Capture.FromString(packer.pack(looked).SerializeToString())
    assert written(unpack(capture, told(packer, capture))) == written(looked)


@given(st.lists(plausible, max_size=3), st.lists(plausible, max_size=3), st.lists(plausible, max_size=3))
def test_captures_merge_in_any_order_and_grouping(
    one: list[ProcessTrace], other: list[ProcessTrace], third: list[ProcessTrace]
) -> None:
    """Of those in the short form: the long one refers to tables by their place."""
    packer = Packer()
    captures = [packer.pack(look) for look in (one, other, third)]
    if any(capture.traces for capture in captures):
        return
    dictionary = told(packer, *captures)
    merged = []
    for a, b, c in permutations(captures):
        left, right, inner = pb.Capture(), pb.Capture(), pb.Capture()
        left.MergeFrom(a)
        left.MergeFrom(b)
        left.MergeFrom(c)
        inner.MergeFrom(b)
        inner.MergeFrom(c)
        right.MergeFrom(a)
        right.MergeFrom(inner)
        merged += [written(unpack(left, dictionary)), written(unpack(right, dictionary))]
    assert all(each == merged[0] for each in merged)


def test_ranks_that_look_the_same_share_their_threads() -> None:
    packer = Packer()
    one, other = packer.pack(crowd(4)), packer.pack(crowd(8)[4:])
    dictionary = told(packer, one, other)
    found = [*unpack(one, dictionary, tids=False), *unpack(other, dictionary, tids=False)]
    assert len({id(trace.threads) for trace in found}) == 1
    assert {thread.tid for thread in found[0].threads} == {0}
    assert unpack(other, dictionary)[0].threads[3].tid == 1007


def test_what_was_told_once_is_not_asked_for_again() -> None:
    first, second = Packer(), Packer()
    dictionary = told(first, first.pack(crowd(8)))
    assert not dictionary.missing(second.pack(crowd(8)))
    elsewhere = second.pack([*crowd(8), ProcessTrace(Rank(8), threads=(Thread("new", 5, (Frame("g", "x.py", 1),)),))])
    assert len(dictionary.missing(elsewhere)) == 1


def test_a_machine_of_eight_ranks_fits_into_four_kilobytes() -> None:
    """Trainers of ten threads that all stand elsewhere, each with eight loader workers; no two counters are alike."""
    trainers = [
        ProcessTrace(
            Rank(rank),
            pid=20_000 + 131 * rank,
            threads=tuple(
                Thread(NAMES[t], 20_000 + 131 * rank + 7 * t, (Frame("f", "x.py", 100 * rank + t),), bool(t % 2), False)
                for t in range(10)
            ),
            state=ProcessState(20_000 + 131 * rank, "R", "", "running", 1000.123 * rank, "python", f"train {rank}"),
        )
        for rank in range(8)
    ]
    workers = [
        ProcessTrace(
            Rank(rank),
            f"dataloader-{number}",
            pid=30_000 + 8 * rank + number,
            threads=tuple(
                Thread(name, 30_000 + 8 * rank + number + at, (), False) for at, name in enumerate(NAMES[:2])
            ),
            state=ProcessState(30_000 + 8 * rank + number, "S", "pipe_read", "0", 17.25, "pt_data_worker", "python"),
        )
        for rank in range(8)
        for number in range(8)
    ]
    assert Packer().pack([*trainers, *workers]).ByteSize() <= 4096


def test_an_agent_forgets_the_oldest_pieces_and_says_so() -> None:
    packer = Packer(most_pieces=20)
    capture = packer.pack(crowd(1, threads=1, depth=30))
    dictionary = PieceCache()
    (pieces,) = packer.find(b"".join(sorted(dictionary.missing(capture))), 0)
    assert len(pieces.pieces) + len(pieces.gone) // 16 == 2
    dictionary.add(pieces.pieces)
    (pieces,) = packer.find(b"".join(sorted(dictionary.missing(capture))), 0)
    assert pieces.gone
    with refused("damaged-message", UnreadableEvidence):
        unpack(capture, dictionary)


def test_a_dictionary_that_is_full_forgets_and_asks_again() -> None:
    packer = Packer()
    capture = packer.pack(crowd(1, threads=1, depth=8))
    dictionary = PieceCache(most_pieces=9)
    for _ in range(9):
        for pieces in packer.find(b"".join(sorted(dictionary.missing(capture))), 0):
            dictionary.add(pieces.pieces)
    assert len(dictionary) <= 9


def test_mixtures_of_threads_are_kept_within_bounds() -> None:
    """Each rank is another mixture of a few threads: they are made, and forgotten again, whatever their number."""
    packer = Packer()
    one, two = (Thread(name, 0, (Frame("f", "x.py", 1),)) for name in ("MainThread", "helper"))
    mixtures = [tuple((one, two)[at >> bit & 1] for bit in range(12)) for at in range(200)]
    captures = [packer.pack([ProcessTrace(Rank(0), pid=1, threads=mixture)]) for mixture in mixtures]
    dictionary = PieceCache(most_bytes=10_000)
    for capture, mixture in zip(captures, mixtures, strict=True):
        for _ in range(2):
            for pieces in packer.find(b"".join(sorted(dictionary.missing(capture))), 0):
                dictionary.add(pieces.pieces)
        (trace,) = unpack(capture, dictionary, tids=False)
        assert [thread.name for thread in trace.threads] == [thread.name for thread in mixture]
        assert dictionary.stacks_built <= 13, "808 bytes each, of 10,000"


@pytest.mark.parametrize(
    "noun", [Frame("f", "x.py", 3), Frame("f", "", 0, ""), Frame("f", "", 0, "libc.so.6"), SharedThread("n", b"x" * 32), KernelView(*"abcde")]
)  # fmt: skip
def test_a_piece_is_named_by_what_it_says(noun: Frame | SharedThread | KernelView) -> None:
    back = unpacked(pb.Piece.FromString(packed(noun).SerializeToString()))
    assert back == noun and digest(back) == digest(noun)


def test_fields_that_run_into_each_other_are_other_pieces() -> None:
    names = {digest(Frame(a, b)) for a, b in (("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("1:ab", "c"))}
    assert len(names | {digest(Frame("ab", "c", 0, ""))}) == 6


@given(st.binary(max_size=300))
def test_whatever_bytes_arrive_only_our_error_comes_of_them(garbage: bytes) -> None:
    capture, pieces, dictionary = pb.Capture(), pb.Pieces(), PieceCache()
    with contextlib.suppress(DecodeError):  # grpc refuses such a message before we see it
        pieces.ParseFromString(garbage)
    with contextlib.suppress(DecodeError):
        capture.ParseFromString(garbage)
    with contextlib.suppress(UnreadableEvidence):
        dictionary.add(pieces.pieces)
        dictionary.missing(capture)
        unpack(capture, dictionary)


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        ({"pids": [1]}, "damaged-message", ""),
        ({"cpu_s": [1.0]}, "damaged-message", ""),
        ({"tids": [1]}, "damaged-message", ""),
        ({"threads": b"x"}, "damaged-message", "thread"),
        ({"threads": b"x" * 17}, "damaged-message", "78787878"),
        ({"face": b"x" * 16}, "damaged-message", "78787878"),
        ({"ranks": [1 << 31], "pids": [1]}, "out-of-range", "2147483648"),
        ({"ranks": [1], "pids": [1], "role": ""}, "damaged-message", "role"),
        ({"missing": pb.Missing(reason="bored")}, "unknown-kind", "bored"),
        ({"threads": b"x" * 17 * 140_000}, "too-many", "140000"),
        ({"ranks": [1] * 5000, "pids": [1] * 5000}, "too-many", "4096"),
    ],
)
def test_a_capture_that_cannot_be_is_refused_by_name(change: dict[str, object], code: str, value: str) -> None:
    fields: dict[str, object] = {"role": "trainer", **change}
    capture = pb.Capture(alike=[pb.Alike(**fields)])  # type: ignore[arg-type]  # a field's type follows its name
    with refused(code, UnreadableEvidence, value):
        unpack(capture, PieceCache())


def test_a_stack_that_all_share_counts_for_each() -> None:
    packer = Packer()
    capture = packer.pack(crowd(8))
    with refused("too-many", UnreadableEvidence, "2400 frames"):
        unpack(capture, told(packer, capture), codec.TraceLimits(frames=1000))


def test_a_main_thread_that_no_name_tells_keeps_its_id() -> None:
    """Its id tells it then, and shared threads have none."""
    packer = Packer()
    thread = Thread(None, 5, (Frame("f", "x.py", 1),))
    capture = packer.pack([ProcessTrace(Rank(1), pid=5, threads=(Thread("loader", 6, ()), thread))])
    (trace,) = unpack(capture, told(packer, capture), tids=False)
    assert trace.threads[1].tid == 5


def test_a_missing_process_keeps_its_reason() -> None:
    packer = Packer()
    capture = packer.pack([ProcessTrace(Rank(1), pid=5, missing=Missing(Reason.TIMED_OUT, "5 s"))])
    assert unpack(capture, PieceCache())[0].missing == Missing(Reason.TIMED_OUT, "5 s")
