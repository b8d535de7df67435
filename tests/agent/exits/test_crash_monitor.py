"""One fall of a job: who ended near to each other, told once, and who is started anew meanwhile is of its next life."""

import signal

from hangdog_agent.discovery.discover import Key, Process, ProcessRole, RankProcesses
from hangdog_agent.discovery.watch import jobs
from hangdog_agent.exits.crash_monitor import LAST_WORDS_S, CrashMonitor
from hangdog_agent.exits.exit_watch import ProcessExit
from hangdog_models.ranks import Rank

LAUNCHER = (10, 1)
SETTLE_S = 6.0


def trainer(rank: int, life: int = 0, job: str = "llama") -> RankProcesses:
    process = Process(100 + rank + 50 * life, LAUNCHER[0], 5 + life, "S", "python", True)
    return RankProcesses(job, Rank(rank), ProcessRole.TRAINER, process, world_size=4)


def ended(rank: int, at: float, status: int | None = 1, life: int = 0) -> ProcessExit:
    return ProcessExit(trainer(rank, life).process.key, at, status, False)


def monitor(*members: RankProcesses) -> CrashMonitor:
    one = CrashMonitor(SETTLE_S)
    see(one, *members)
    return one


def see(one: CrashMonitor, *members: RankProcesses) -> None:
    one.see(members, jobs(members))


ALL = tuple(trainer(rank) for rank in range(4))


def keys(*ranks: int) -> set[Key]:
    return {trainer(rank).process.key for rank in ranks}


def test_a_fall_is_told_once_soon_after_the_last_end() -> None:
    one = monitor(*ALL)
    for rank in range(4):
        one.end([ended(rank, 100.0 + rank / 10)])
        see(one, *ALL)  # the process table was not taken again yet
        assert not one.fallen(100.0 + rank / 10)
    assert one.falling().keys() == keys(0, 1, 2, 3)
    assert not one.fallen(100.3 + LAST_WORDS_S - 0.1)
    (fall,) = one.fallen(100.3 + LAST_WORDS_S)
    assert fall.ended.keys() == keys(0, 1, 2, 3) and fall.job.ranks == (0, 1, 2, 3) and fall.launcher_s is None
    see(one, *ALL)
    assert not one.falling() and not one.fallen(200.0)


def test_who_does_not_end_is_not_waited_for_and_is_the_crowd_of_that_crash() -> None:
    one = monitor(*ALL)
    one.end([ended(2, 100.0)])
    see(one, *(member for member in ALL if member.rank != 2))
    assert not one.fallen(100.0 + SETTLE_S - 0.1)
    (fall,) = one.fallen(100.0 + SETTLE_S)
    assert fall.ended.keys() == keys(2) and fall.trainers.keys() == keys(0, 1, 2, 3)
    one.ignore(fall)
    see(one, *(member for member in ALL if member.rank != 2))
    one.end([ended(0, 120.0), ended(1, 121.0)])
    assert not one.fallen(200.0)


def test_who_ended_well_before_the_others_leaves_them_watched() -> None:
    one = monitor(*ALL)
    one.end([ended(2, 100.0, 0)])
    assert len(one.fallen(100.0 + SETTLE_S)) == 1  # no crash, so nothing is ignored
    see(one, *(member for member in ALL if member.rank != 2))
    one.end([ended(rank, 150.0) for rank in (0, 1, 3)])
    (fall,) = one.fallen(150.0 + LAST_WORDS_S)
    assert fall.ended.keys() == keys(0, 1, 3)


def test_who_is_started_anew_belongs_to_the_next_life() -> None:
    one = monitor(*ALL)
    one.end([ended(rank, 100.0) for rank in range(4)])
    again = [trainer(rank, life=1) for rank in range(4)]
    see(one, *again)
    (fall,) = one.fallen(102.0)
    assert fall.trainers.keys() == keys(0, 1, 2, 3)
    one.ignore(fall)
    see(one, *again)
    one.end([ended(1, 130.0, life=1)])
    (fall,) = one.fallen(130.0 + SETTLE_S)
    assert fall.ended.keys() == {trainer(1, 1).process.key}


def test_whose_end_is_known_only_after_the_process_table_is_one_of_the_fallen() -> None:
    one = monitor(*ALL)
    see(one, *(member for member in ALL if member.rank != 2))
    one.end([ended(2, 100.0)])
    (fall,) = one.fallen(100.0 + SETTLE_S)
    assert fall.ended.keys() == keys(2) and fall.job.ranks == (0, 1, 2, 3)


def test_who_is_gone_for_long_is_no_part_of_the_job() -> None:
    one = monitor(*ALL)
    for _ in range(2):
        see(one, *ALL[:3])
    one.end([ended(0, 100.0)])
    (fall,) = one.fallen(100.0 + SETTLE_S)
    assert fall.trainers.keys() == keys(0, 1, 2) and fall.job.ranks == (0, 1, 2)
    assert not one.fallen(200.0)


def test_two_jobs_fall_apart() -> None:
    other = trainer(0, life=7, job="qwen")
    one = monitor(*ALL, other)
    one.end([ended(0, 100.0), ProcessExit(other.process.key, 101.0, 0, False)])
    falls = {fall.job.name: fall for fall in one.fallen(101.0 + SETTLE_S)}
    assert falls.keys() == {"llama", "qwen"} and falls["qwen"].ended.keys() == {other.process.key}


def test_a_launcher_that_was_killed_is_told_of() -> None:
    for status, at in ((-signal.SIGKILL, 100.2), (1, None)):
        one = monitor(*ALL)
        one.end([ProcessExit(LAUNCHER, 100.2, status, False), *(ended(rank, 100.0, -9) for rank in range(4))])
        (fall,) = one.fallen(110.0)
        assert fall.launcher_s == at
