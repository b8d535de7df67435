"""Looks that travel together: what is not told of the one before is what the one behind shows, and nothing else is believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.stack import ProcessTrace
from hangdog_proto.codec import findings
from hangdog_proto.codec.dedup import Packer, unpack
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.codec.rounds import count, pack_earlier, rebuilt, rebuilt_traces, same_but_for_counts, unpack_rounds
from hangdog_proto.generated import hangdog_pb2 as pb
from support.cases.traced import plausible, traces
from support.refused import refused

pytestmark = [pytest.mark.slow, pytest.mark.parallel]


def told(packer: Packer, capture: pb.Capture) -> PieceCache:
    dictionary = PieceCache()
    for _ in range(2):  # the threads and faces, then their frames
        for pieces in packer.find(b"".join(dictionary.missing(capture)), 0):
            dictionary.add(pieces.pieces)
    return dictionary


def aged(trace: ProcessTrace, seconds: float) -> ProcessTrace:
    """The same process after it ran for a while; what was not counted is not counted later, either."""
    state = trace.state
    if state is None:
        return trace
    cpu_s = None if state.cpu_s is None else state.cpu_s + seconds
    ran_s = None if state.ran_s is None else state.ran_s + seconds
    wakes = None if state.wakes is None else state.wakes + int(2 * seconds)
    steps = None if state.steps is None else state.steps + int(seconds)
    return structs.replace(trace, state=structs.replace(state, cpu_s=cpu_s, ran_s=ran_s, wakes=wakes, steps=steps))


@given(st.lists(st.one_of(plausible, traces), max_size=5), st.sampled_from([0.0, 1.5]))
def test_a_look_that_differs_in_its_counts_alone_comes_back_from_the_one_behind_it(
    looked: list[ProcessTrace], seconds: float
) -> None:
    packer = Packer()
    before, after = packer.pack(looked), packer.pack([aged(trace, seconds) for trace in looked])
    counted = same_but_for_counts(before, after)
    if counted is None:  # the long form holds its counts itself
        assert before.traces and seconds
        return
    after.findings.extend(findings.pack([Finding("NVML", "Xid 79", Impact.CONVICTS, "fell off the bus")]))
    after.statements.add(kind="record")
    assert same_but_for_counts(before, after) == counted, "what comes with the last look alone"
    assert rebuilt(after, counted) == before
    first, second = pb.Before(round=0), pb.Before(round=1)
    first.MergeFrom(counted)
    second.MergeFrom(counted)
    beside = pack_earlier(2, [first, second])
    alone = before.SerializeToString()
    assert count(beside) == 2 and count(None) == 0
    last = after.SerializeToString()
    assert list(unpack_rounds(12, last, beside)) == [(10, alone), (11, alone), (12, last)], "numbered on from 10"
    dictionary = told(packer, after)
    shown = rebuilt_traces(unpack(after, dictionary), after, counted)
    assert list(map(repr, shown)) == list(map(repr, unpack(before, dictionary)))


@given(st.lists(plausible, min_size=1, max_size=4), st.lists(plausible, min_size=1, max_size=4))
def test_looks_that_show_different_things_are_not_taken_for_the_same(
    one: list[ProcessTrace], other: list[ProcessTrace]
) -> None:
    packer = Packer()
    before, after = packer.pack(one), packer.pack(other)
    counted = same_but_for_counts(before, after)
    assert counted is None or rebuilt(after, counted) == before


@pytest.mark.parametrize(
    ("cpu_s", "code"), [([], "damaged-message"), ([1.0, 2.0], "damaged-message"), ([float("nan")], "not-a-number")]
)
def test_counts_that_do_not_fit_are_not_believed(cpu_s: list[float], code: str) -> None:
    after = pb.Capture(alike=[pb.Alike(ranks=[0], pids=[7], cpu_s=[1.0], role="trainer", face=b"f" * 16)])
    dictionary = PieceCache()
    dictionary.add([pb.Piece(face=pb.Face(state="S"))])
    after.alike[0].face = next(iter(dictionary.add([pb.Piece(face=pb.Face(state="S"))])))
    shown = unpack(after, dictionary)
    with refused(code, UnreadableEvidence):
        rebuilt_traces(shown, after, pb.Before(cpu_s=cpu_s))
