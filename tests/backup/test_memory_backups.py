"""Copies in the memory of other machines: what comes back after which machines are lost, and what is refused meanwhile."""

import os
import re
import signal
from collections.abc import Callable

import pytest

from backup.threads import PlayedJob, holder_pid, played_job
from hangdog.backup.backups import Backups, Restored
from hangdog.backup.holder_client import end, near
from hangdog.backup.wire import BackupFailed
from hangdog_models.errors import WrongUse
from hangdog_models.planning.backups import place
from hangdog_models.topology import Layout, build
from support.refused import refused

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

#: Four machines of two ranks: data-parallel groups are on m0 and m1 or m2 and m3, pipelines on m0 and m2 or m1 and m3.
MACHINES = ["m0", "m0", "m1", "m1", "m2", "m2", "m3", "m3"]
PLACEMENT = place(build(Layout(sizes={"tp": 2, "dp": 2, "pp": 2}, ranks_per_machine=2), None)[0]).holder


def shard(rank: int, step: int) -> bytes:
    return f"rank {rank} step {step} ".encode() * (100 + rank)


def kept(*steps: int) -> Callable[[Backups, int], bool]:
    def act(backups: Backups, rank: int) -> bool:
        for step in steps:
            assert backups.keep(step, shard(rank, step)), backups.problem
            assert backups.finish(), backups.problem
        return True

    return act


def restored(backups: Backups, rank: int) -> tuple[Restored | None, str]:
    return backups.restore(), backups.problem


def came_back(job: PlayedJob, machines: list[str]) -> int:
    """The step that came back on all ranks, byte for byte."""
    answers = [answer for answer, _ in job.run(machines, restored)]
    steps = {answer.step for answer in answers if answer is not None}
    assert None not in answers and len(steps) == 1
    (step,) = steps
    assert [bytes(answer.body) for answer in answers if answer] == [shard(rank, step) for rank in range(len(machines))]
    return step


def test_trainers_that_end_find_their_newest_copy_again() -> None:
    with played_job(PLACEMENT) as job:
        job.run(MACHINES, kept(10, 20, 30))
        assert came_back(job, MACHINES) == 30


@pytest.mark.parametrize("lost", [["m0"], ["m0", "m1"], ["m1", "m3"]])
def test_one_machine_or_a_whole_parallel_group_may_be_evicted(lost: list[str]) -> None:
    with played_job(PLACEMENT) as job:
        job.run(MACHINES, kept(10, 20))
        for machine in lost:
            job.lose(machine)
        spares = {machine: f"spare-{machine}" for machine in lost}
        assert came_back(job, [spares.get(machine, machine) for machine in MACHINES]) == 20


def test_ranks_may_come_back_on_other_machines_and_go_on_keeping_within_the_same_memory() -> None:
    """Two copies of own ranks and of guests fit exactly, also where a machine holds the old copy of other ranks."""
    size = max(len(shard(rank, step)) for rank in range(8) for step in (20, 30, 40))
    with played_job(PLACEMENT, memory=8 * size) as job:
        job.run(MACHINES, kept(20))
        turned = [*MACHINES[2:], *MACHINES[:2]]
        assert came_back(job, turned) == 20

        def go_on(backups: Backups, rank: int) -> bool:
            return backups.restore() is not None and kept(30, 40)(backups, rank)

        assert all(job.run(turned, go_on))
        assert came_back(job, MACHINES) == 40


def test_both_copies_lost_is_none_on_all_ranks_and_says_whose_are_missing() -> None:
    holder = MACHINES[PLACEMENT[0]]
    with played_job(PLACEMENT) as job:
        job.run(MACHINES, kept(10))
        job.lose("m0")
        job.lose(holder)
        answers = job.run([f"spare-{one}" if one in ("m0", holder) else one for one in MACHINES], restored)
        assert {answer for answer, _ in answers} == {None}
        (problem,) = {problem for _, problem in answers}
        assert re.search(r"\bfrom storage: step 10: no machine .*\branks 0-1\b", problem)


def test_a_copy_that_one_rank_lacks_does_not_count() -> None:
    with played_job(PLACEMENT) as job:

        def act(backups: Backups, rank: int) -> bool:
            kept(10)(backups, rank)
            if rank == 0:
                job.lose("m3")
            backups.finish()  # so that no rank begins before it is gone
            backups.keep(20, shard(rank, 20))
            assert not backups.finish()
            return True

        job.run(MACHINES, act)
        assert came_back(job, [*MACHINES[:6], "spare", "spare"]) == 10


def test_a_holder_that_died_is_started_again_and_the_next_copy_counts() -> None:
    with played_job(PLACEMENT) as job:

        def act(backups: Backups, rank: int) -> bool:
            kept(10)(backups, rank)
            if rank == 0:
                job.lose("m3")
            backups.finish()
            backups.keep(20, shard(rank, 20))
            backups.finish()
            return kept(30)(backups, rank)

        job.run(MACHINES, act)
        assert came_back(job, MACHINES) == 30


def test_a_slow_peer_makes_all_skip_a_step_and_none_wait() -> None:
    with played_job(PLACEMENT) as job:

        def act(backups: Backups, rank: int) -> tuple[bool, str]:
            kept(10)(backups, rank)
            pid = holder_pid(job.member(), "m3")
            backups.finish()
            if rank == 0:
                os.kill(pid, signal.SIGSTOP)
            backups.finish()
            backups.keep(20, shard(rank, 20))
            skipped = backups.keep(30, shard(rank, 30)), backups.problem
            backups._group.gather(b"")  # all have skipped before it goes on
            if rank == 0:
                os.kill(pid, signal.SIGCONT)
            assert backups.finish(), backups.problem
            return skipped

        answers = job.run(MACHINES, act)
        assert {went for went, _ in answers} == {False}
        assert all("still copies step 20" in problem for _, problem in answers)
        assert came_back(job, MACHINES) == 20


def test_a_step_is_skipped_where_keeping_it_takes_more_of_the_time_than_it_may() -> None:
    with played_job((1, 0)) as job:
        job.share = 0.0

        def act(backups: Backups, rank: int) -> tuple[bool, str]:
            kept(10)(backups, rank)
            return backups.keep(20, shard(rank, 20)), backups.problem

        answers = job.run(["m0", "m1"], act)
        assert not any(went for went, _ in answers)
        assert all("0.0% of its time" in problem for _, problem in answers)


def test_too_little_memory_keeps_nothing_and_says_how_much_is_needed() -> None:
    with played_job(PLACEMENT, memory=3000) as job:

        def act(backups: Backups, rank: int) -> str:
            backups.keep(10, shard(rank, 10))
            assert not backups.finish()
            return backups.problem

        assert any("and 3000 allowed" in problem for problem in job.run(MACHINES, act))


def test_a_job_of_another_size_or_another_key_finds_nothing() -> None:
    with played_job(PLACEMENT) as job:
        job.run(MACHINES, kept(10))
        other = PlayedJob((2, 3, 0, 1), job=job.job, key=job.key)
        assert {answer for answer, _ in other.run(MACHINES[:4], restored)} == {None}
        with played_job(PLACEMENT) as stranger:
            stranger.job = job.job
            assert {answer for answer, _ in stranger.run(MACHINES, restored)} == {None}
        assert came_back(job, MACHINES) == 10


def test_a_backup_on_the_own_machine_is_refused() -> None:
    with played_job((1, 0)) as job, refused("wrong-placement", WrongUse, "rank 0", "m0"):
        job.run(["m0", "m0"], restored)


def test_a_job_that_is_over_leaves_no_holder() -> None:
    with played_job((1, 0)) as job:
        job.run(["m0", "m1"], lambda backups, rank: backups.close(forget=True))
        for machine in ("m0", "m1"):
            with pytest.raises((OSError, BackupFailed)), near(job.member(), machine) as line:
                end(line)
