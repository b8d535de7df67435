"""Whose native stack is asked for: who stands out, who waits beside, a few of the crowd; and nobody where it decides nothing."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.planning.native import deciding
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Frame, Missing, Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Verdict
from support.cases.stories import C10D, job, look, snapshot, trace

CALL = ["<module> train.py", "step train.py"]
REDUCE = [*CALL, f"all_reduce {C10D}"]
CUBE = job(tp=2, dp=2, pp=2)
WIDE = job(per_machine=8, dp=64)


def asked(
    seen: Snapshot, topology: Topology, verdict: Verdict | None = None, most: int = 32, each: int = 2
) -> list[int]:
    judged = verdict or open_case(seen, topology)
    return [one.rank for one in deciding(seen, topology, judged, most, each)]


def open_case(seen: Snapshot, topology: Topology) -> Verdict:
    """The verdict as it stands, but open: what is asked for then does not depend on how sure a diagnosis happens to be."""
    return replace(diagnose(seen, topology), kind=Kind.UNDETERMINED)


def ranks(places: Mapping[int, list[str]], world: int = 64, twice: bool = True) -> Snapshot:
    traces = [trace(rank, places.get(rank, REDUCE)) for rank in range(world)]
    return snapshot(traces, traces) if twice else snapshot(traces)


def test_one_that_stands_out_then_the_crowd_by_three_of_it_and_who_waits_beside() -> None:
    seen = ranks({37: CALL})
    chosen = deciding(seen, WIDE, open_case(seen, WIDE), 32, 2)
    assert chosen[0].rank == 37 and "suspected" in chosen[0].why
    assert {0, 63, 31} < {one.rank for one in chosen}, "the first, the last and the middle one of the crowd"
    assert len(chosen) < 20, "and no more of it than it takes"
    assert any("waits beside" in one.why for one in chosen)


def test_so_many_in_all_and_on_one_machine() -> None:
    seen = ranks({rank: [*CALL, f"work part_{rank}.py"] for rank in range(0, 64, 3)})
    chosen = asked(seen, WIDE, most=9)
    assert len(chosen) == 9
    chosen = asked(seen, WIDE, most=64, each=2)
    machines = [WIDE.machine(Rank(rank)) for rank in chosen]
    assert max(machines.count(machine) for machine in machines) == 2


def test_where_all_stand_at_one_place_many_are_asked_and_spread_over_the_machines() -> None:
    chosen = asked(ranks(dict.fromkeys(range(64), CALL)), WIDE)
    assert len(chosen) == 16 and len({WIDE.machine(Rank(rank)) for rank in chosen}) == 8


@pytest.mark.parametrize("kind", [Kind.NONE, Kind.SLOW, Kind.SOFTWARE])
def test_a_verdict_that_no_native_stack_mends_is_let_be(kind: Kind) -> None:
    seen = ranks({37: CALL})
    verdict = replace(diagnose(seen, WIDE), kind=kind, confidence=0.6)
    assert not asked(seen, WIDE, verdict)
    assert asked(seen, WIDE, replace(verdict, confidence=0.3)), "who it is is known then, and why is not"


@pytest.mark.parametrize(("confidence", "wanted"), [(0.89, True), (0.95, False)])
def test_a_sure_verdict_is_let_be(confidence: float, wanted: bool) -> None:
    seen = ranks({37: CALL})
    verdict = replace(diagnose(seen, WIDE), kind=Kind.MACHINE, confidence=confidence)
    assert bool(asked(seen, WIDE, verdict)) is wanted


def test_who_stands_out_for_what_python_shows_need_not_be_stopped() -> None:
    traces = look({"0-4,6-7": "metrics", "5": "loader"})
    assert not asked(snapshot(traces, traces), CUBE)


def test_nobody_is_stopped_who_was_seen_once_or_seen_to_move() -> None:
    assert not asked(ranks({37: CALL}, twice=False), WIDE)
    before = [trace(rank, CALL if rank == 37 else REDUCE) for rank in range(64)]
    after = [trace(rank, CALL if rank == 37 else REDUCE, shift=int(rank in (37, 0))) for rank in range(64)]
    chosen = asked(snapshot(before, after), WIDE)
    assert chosen and not {37, 0} & set(chosen)


def test_nobody_is_stopped_whose_capture_met_an_obstacle() -> None:
    stuck = Missing(Reason.UNINTERRUPTIBLE, "thread 7 (python) sleeps uninterruptibly")
    traces = [trace(rank, CALL if rank == 37 else REDUCE) for rank in range(64)]
    traces[37] = structs.replace(traces[37], missing=stuck)
    assert 37 not in asked(snapshot(traces, traces), WIDE)


def test_native_stacks_that_are_there_already_are_not_asked_for_again() -> None:
    deep = Frame("recv", "libc.so.6", 0, "/usr/lib/libc.so.6")
    traces = [trace(rank, CALL if rank == 37 else REDUCE) for rank in range(64)]
    thread = traces[37].threads[0]
    traces[37] = structs.replace(traces[37], threads=(structs.replace(thread, frames=(*thread.frames, deep)),))
    assert not asked(snapshot(traces, traces), WIDE)
