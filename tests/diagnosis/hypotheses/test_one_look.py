"""What a single look tells of several machines: who is held is stuck, who may be at a moment of a step is left alone."""

from dataclasses import replace

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.stack import ProcessTrace
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Verdict
from support.cases.reasons import words_of
from support.cases.stories import first, job, snapshot, trace

WIDE = job(dp=64, per_machine=8)
LOCK = ["<module> train.py", "log train.py", "acquire logging/__init__.py"]
CHILD = ["<module> train.py", "refresh auth.py", "communicate subprocess.py"]
PACKING = ["<module> train.py", "pack packing.py"]
FORWARD = ["<module> train.py", "_call_impl torch/nn/modules/module.py", "forward model.py"]
STEP = ["<module> train.py", "step torch/optim/adamw.py"]


def look(*odd: ProcessTrace) -> list[ProcessTrace]:
    """All ranks but these wait in a collective."""
    elsewhere = {one.rank for one in odd}
    return [*(trace(rank, "gather") for rank in range(WIDE.world_size) if Rank(rank) not in elsewhere), *odd]


def once(*odd: ProcessTrace) -> Verdict:
    return diagnose(snapshot(look(*odd)), WIDE)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (trace(5, LOCK, state="T"), trace(40, CHILD, state="T")),
        (trace(5, "user", state="T"), trace(40, PACKING, state="D", wchan="uvm_ioctl")),
        (trace(5, "disk", state="D", wchan="os_acquire_mutex"), trace(40, PACKING, state="D", wchan="uvm_ioctl")),
    ],
)
def test_two_outside_at_different_places_of_whom_one_is_held_are_both_stuck(
    first: ProcessTrace, second: ProcessTrace
) -> None:
    assert once(first, second).evict.machines == ("node-0", "node-5")


@pytest.mark.parametrize("other", [CHILD, "user", "upload"])
def test_of_two_outside_nobody_is_evicted_for_a_lock_or_for_what_the_code_asked_for(other: str | list[str]) -> None:
    """Alone neither would be: that there are two of them makes their machines no sicker."""
    lock, asks = trace(5, LOCK, state="S"), trace(40, other, state="S")
    verdict = once(lock, asks)
    assert verdict.evict.machines == () and verdict.culprit is not None
    stopped = trace(5, LOCK, state="T")
    beside = once(stopped, asks)
    assert beside.evict.machines == ("node-0",)


def test_one_that_runs_beside_one_that_is_not_held_may_be_at_a_moment_of_a_step() -> None:
    runs = trace(5, PACKING, state="R", active=True, gil=True)
    for other in (trace(40, "user", state="R", active=True, gil=True), trace(40, "user", state="S")):
        verdict = once(runs, other)
        assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())


def test_where_more_than_one_machine_is_at_work_who_is_held_may_be_so_for_a_moment() -> None:
    held = trace(5, LOCK, state="S")
    runs = [trace(rank, stack, state="R", active=True, gil=True) for rank, stack in ((24, "user"), (40, PACKING))]
    assert once(held, *runs).evict.machines == ()
    assert once(held, trace(24, "gather", active=True, gil=True)).evict.machines == ()


def test_two_held_at_the_very_same_place_are_one_matter() -> None:
    assert once(trace(5, LOCK, state="S"), trace(40, LOCK, state="S")).evict.machines == ()


def test_who_was_captured_in_one_of_two_looks_is_a_suspect_beside_one_that_stood_still() -> None:
    held, other = trace(5, LOCK, state="S"), trace(40, "user")
    lost = snapshot(look(held, other), look(held, trace(40, "timed out")))
    suspected = {machine for suspect in diagnose(lost, WIDE).suspects for machine in suspect.machines}
    assert suspected == {"node-0", "node-5"}


def test_an_operator_that_the_kernel_shows_asleep_waits_as_a_launch_does() -> None:
    def twice(state: str) -> Verdict:
        seen = look(trace(5, STEP, state=state))
        return diagnose(snapshot(seen, seen), WIDE)

    assert twice("S").evict.machines == ()
    assert twice("T").evict.machines == ("node-0",)
    unknown = twice("")  # it may be stopped, and no kernel tells
    assert (unknown.kind, first(unknown), unknown.evict.machines) == (Kind.MACHINE, (5,), ())


def test_one_alone_in_a_full_queue_is_no_victim_of_a_rank_that_is_held() -> None:
    def twice(*queued: int, topology: Topology = WIDE) -> Verdict:
        seen = look(
            trace(5, PACKING, state="D", wchan="uvm_ioctl"), *(trace(rank, FORWARD, state="S") for rank in queued)
        )
        return diagnose(snapshot(seen, seen), topology)

    assert twice(40).evict.machines == ("node-0", "node-5")
    assert twice(24, 40).evict.machines == ("node-0",)
    staged = job(dp=16, pp=4, per_machine=8)
    assert twice(40, topology=staged).evict.machines == ("node-0", "node-5")
    assert twice(37, topology=staged).evict.machines == ("node-0",)  # of its own pipeline, it waits for messages


def test_a_whole_group_in_full_queues_but_for_one_that_runs_waits_for_it_and_a_part_of_one_is_at_work() -> None:
    split = job(tp=4, dp=16, per_machine=8)

    def beside(*queued: int) -> Verdict:
        runs = trace(5, PACKING, state="R", active=True, gil=True)
        seen = look(runs, *(trace(rank, FORWARD, state="S") for rank in queued))
        return diagnose(snapshot(seen), split)

    whole, part, elsewhere = beside(4, 6, 7), beside(4), beside(40)
    assert first(whole) == (5,) and whole.culprit is not None
    assert not (whole.evict.machines or part.evict.machines or elsewhere.evict.machines)
    for other in (part, elsewhere):
        assert other.culprit is None or other.culprit.probability < whole.culprit.probability


def test_peers_that_spin_beside_one_that_is_held_are_no_work() -> None:
    spins = [trace(rank, "user", state="R", active=True) for rank in (4, 6)]
    assert once(trace(5, PACKING, state="D", wchan="uvm_ioctl"), *spins).evict.machines == ("node-0",)


def test_who_waits_is_past_what_it_asked_of_a_service() -> None:
    reads = trace(5, "uninterruptible sleep", state="D", wchan="nfs_wait_on_request")
    assert once(reads).evict.machines == ("node-0",)


def test_a_stated_standstill_is_no_moment_of_a_step() -> None:
    """Nor is it decided by one look alone that nothing moved: somebody saw it."""
    one = snapshot([*(trace(rank, "gather") for rank in range(3)), trace(3, "disk", state="S")])
    few = job(dp=4, per_machine=1)
    stated = (None, 1.0, 20.0, 1800.0)
    known = [diagnose(replace(one, job=replace(one.job, stalled_s=stalled_s)), few) for stalled_s in stated]
    unstated, short, long, longer = (verdict.suspects[0].probability for verdict in known)
    assert unstated == short < long < longer
    assert all(first(verdict) == (3,) for verdict in known)


def test_one_look_at_a_standstill_that_was_stated_decides_what_two_looks_do() -> None:
    ranks = [trace(rank, "disk") if rank == 5 else trace(rank, "metrics", state="S") for rank in range(8)]
    shape = job(tp=2, dp=2, pp=2)
    one, two = snapshot(ranks), snapshot(ranks, ranks)
    stated, seen = (diagnose(replace(s, job=replace(s.job, stalled_s=1800.0)), shape) for s in (one, two))
    assert stated.evict.machines == seen.evict.machines == ("node-2",)
    assert "1800 s" in words_of(stated.suspects[0].because, "waits-for-storage")


def test_a_standstill_that_a_phase_may_last_as_well_is_no_second_look() -> None:
    ranks = [trace(rank, "disk" if rank == 5 else "metrics", state="S") for rank in range(8)]
    one = snapshot(ranks)
    short = diagnose(replace(one, job=replace(one.job, stalled_s=60.0)), job(tp=2, dp=2, pp=2))
    assert "unchanged" not in " ".join(map(str, short.suspects[0].because))


def test_who_runs_where_a_standstill_was_stated_is_not_said_to_have_stood_there() -> None:
    ranks = [trace(rank, "user" if rank == 5 else "metrics", state="R" if rank == 5 else "S") for rank in range(8)]
    one = snapshot(ranks)
    verdict = diagnose(replace(one, job=replace(one.job, stalled_s=1800.0)), job(tp=2, dp=2, pp=2))
    assert first(verdict) == (5,) and "unchanged" not in " ".join(map(str, verdict.suspects[0].because))
