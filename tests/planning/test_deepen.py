"""Native stacks join the looks before them where both show one standstill; they are no motion, and count for a whole place."""

from collections.abc import Iterable, Mapping

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose, investigate
from hangdog_models.diagnosis.observe import motion
from hangdog_models.diagnosis.observe.rank_state_reader import RankStateReader
from hangdog_models.planning.native_depth import Deepened, deepen
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Frame, Missing, ProcessTrace, Reason
from hangdog_models.verdict import Activity, Kind
from support.cases.stories import job, snapshot, trace

CALL = ["<module> train.py", "step train.py", "exchange binding.py"]
RULES = packaged()
#: A machine each: at one Python line, a place no rule knows.
EIGHT = job(per_machine=1, dp=8)
LOCK = ("exchange", "take_lock", "pthread_mutex_lock", "0x7f8dee4a412b")
RECV = ("exchange", "receive", "recv")


def native(seen: ProcessTrace, calls: Iterable[str], **changes: object) -> ProcessTrace:
    """The same process read with native frames, some of them above Python's."""
    thread = seen.threads[0]
    start = Frame("0x7f8dee44524a", "libc.so.6", 0, "/usr/lib/libc.so.6")
    below = tuple(Frame(call, "call.so", 0, "/opt/call.so") for call in calls)
    return structs.replace(seen, threads=(structs.replace(thread, frames=(start, *thread.frames, *below)),), **changes)


def still(rounds: int = 3, world: int = 8) -> Snapshot:
    traces = [trace(rank, CALL, state="S") for rank in range(world)]
    return snapshot(*[traces] * rounds)


def deepened(seen: Snapshot, calls: Mapping[int, Iterable[str]], asked: Iterable[int] = ()) -> Deepened:
    last = seen.rounds[-1].traces
    return deepen(
        seen, {*map(Rank, asked), *map(Rank, calls)}, [native(last[rank], calls[rank]) for rank in calls], RULES
    )


def looks(seen: Snapshot) -> list[motion.Look]:
    reader = RankStateReader(RULES)
    return [reader.look(round_.traces) for round_ in seen.rounds]


def test_the_one_in_a_lock_is_named_where_python_shows_all_alike() -> None:
    before = diagnose(still(), EIGHT)
    assert before.kind is Kind.UNDETERMINED and not before.suspects
    deeper = deepened(still(), {rank: LOCK if rank == 5 else RECV for rank in range(8)})
    after = diagnose(deeper.snapshot, EIGHT)
    assert (after.kind, after.suspects[0].ranks, after.evict.machines) == (Kind.SOFTWARE, (5,), ())
    assert after.culprit is not None and after.culprit.ranks == (5,) and after.culprit.probability > 0.8


def test_a_native_look_is_no_motion() -> None:
    deeper = deepened(still(), {rank: LOCK if rank == 5 else RECV for rank in range(8)}).snapshot
    case = investigate(deeper, EIGHT)
    assert case.look[Rank(5)].activity is Activity.LOCK
    assert case.motion.still == set(range(8)) and not case.motion.moving and not case.motion.freed
    assert not case.motion.stirring and not case.motion.moved_on


def test_what_moves_in_c_moves_where_both_looks_show_it() -> None:
    first = [native(trace(rank, CALL), RECV) for rank in range(8)]
    second = [native(trace(rank, CALL), LOCK) for rank in range(8)]
    assert motion.observe(looks(snapshot(first, second))).moving == set(range(8))


def test_who_was_stopped_between_two_looks_has_changed_whatever_the_frames() -> None:
    first = [trace(rank, CALL, state="S") for rank in range(8)]
    second = [native(trace(rank, CALL, state="T"), RECV) for rank in range(8)]
    assert not motion.observe(looks(snapshot(first, second))).still


def test_those_nobody_read_count_as_the_most_that_were_read_at_their_place() -> None:
    """Else the read ones would be in one place and the others, including one whose last look failed, in another."""
    traces = [trace(rank, CALL, state="S") for rank in range(8)]
    lost = [
        structs.replace(one, threads=(), missing=Missing(Reason.TIMED_OUT, "")) if one.rank == 6 else one
        for one in traces
    ]
    deeper = deepened(snapshot(traces, lost), {0: LOCK, 4: LOCK, 7: LOCK})
    assert deeper.own == (0, 4, 7) and deeper.like == (1, 2, 3, 5, 6)
    case = investigate(deeper.snapshot, EIGHT)
    assert {standing.activity for standing in case.look.values()} == {Activity.LOCK}
    assert len(case.clusters) == 1 and case.motion.still == set(range(8)) - {6}
    assert any("1-3,5-6 " in note for note in deeper.snapshot.account.notes)


def test_where_those_read_at_one_place_differ_and_not_all_were_none_counts() -> None:
    seen = still()
    deeper = deepened(seen, {0: RECV, 1: LOCK})
    assert deeper.snapshot.rounds == seen.rounds and not deeper.own
    assert "differ" in deeper.snapshot.account.notes[-1]


def test_an_odd_one_among_those_read_keeps_what_it_is() -> None:
    deeper = deepened(still(), {0: RECV, 1: LOCK, 4: RECV})
    look = looks(deeper.snapshot)[-1]
    assert {rank for rank, standing in look.items() if standing.activity is Activity.LOCK} == {1}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda one: None, "in time"),
        (lambda one: one, "Python frames"),
        (lambda one: structs.replace(one, threads=(), missing=Missing(Reason.NOT_SAFE, "it gets on")), "safe to hold: it gets on"),
        (lambda one: native(one, RECV, pid=77), "another process"),
        (lambda one: native(trace(one.rank, [*CALL, "next train.py"]), RECV), "moved on"),
        (lambda one: native(trace(one.rank, CALL, shift=3), RECV), "moved on"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_left_out_with_its_reason(answer: object, why: str) -> None:
    assert callable(answer)
    seen = still()
    came = answer(seen.rounds[-1].traces[3])
    deeper = deepen(seen, [Rank(3)], [came] if came else [], RULES)
    assert deeper.snapshot.rounds == seen.rounds and not deeper.own
    (note,) = deeper.snapshot.account.notes
    assert " ranks 3: " in note and why in note.partition(": ")[2]
    assert diagnose(deeper.snapshot, EIGHT).suspects == diagnose(seen, EIGHT).suspects


def test_threads_that_moved_keep_their_python_frames() -> None:
    seen = still()
    main = seen.rounds[-1].traces[0]
    helper = structs.replace(main.threads[0], name="helper", tid=9)
    two = structs.replace(main, threads=(*main.threads, helper))
    other = structs.replace(
        native(two, RECV), threads=(*native(main, RECV).threads, structs.replace(helper, frames=helper.frames[:1]))
    )
    seen = snapshot([two], [two])
    (deeper,) = deepen(seen, [Rank(0)], [other], RULES).snapshot.rounds[-1].traces
    assert deeper.threads[0].frames[-1].function == "recv" and deeper.threads[1] == helper
