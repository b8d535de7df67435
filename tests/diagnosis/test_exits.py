"""Whether the ends of a job's trainers are a crash, its usual end, or an order from outside: where in doubt, no crash."""

import signal

import pytest

from hangdog_models.exits import Ending, Exit, ending, failed
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank

TERM, KILL, SEGV, INT = (-number for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT))
ERROR = Finding("log", "ValueError", Impact.PROGRAM, "x", rank=Rank(0))
TOLD = Finding("log", "told to stop", Impact.TELLS_NOTHING, "a signal told the launcher to end the job")
BROKEN = Finding("log", "GPU lost", Impact.CONVICTS, "x", rank=Rank(0))
LOUD = Finding("log", "connection tried again", Impact.TELLS_NOTHING, "x", rank=Rank(0))


def exits(*statuses: int | None, oom: bool = False) -> list[Exit]:
    return [Exit(Rank(rank), status, 100.0 + rank / 10, oom) for rank, status in enumerate(statuses)]


@pytest.mark.parametrize(
    ("statuses", "findings", "expected"),
    [
        ((0, 0, 0, 0), (), Ending.FINISHED),
        ((0, 0, 0, 0), (ERROR,), Ending.FINISHED),  # it was caught: the program went on and ended well
        ((None, None), (), Ending.FINISHED),  # nobody could tell: no fault
        ((None, None), (LOUD,), Ending.FINISHED),
        ((None, None), (ERROR,), Ending.CRASHED),
        ((0, TERM, TERM), (), Ending.STOPPED),
        ((143, 130, -1), (), Ending.STOPPED),
        ((INT, INT), (), Ending.STOPPED),
        ((1, 1), (TOLD,), Ending.STOPPED),  # handlers of SIGTERM that write a checkpoint and end with an error
        ((KILL, TERM), (TOLD,), Ending.STOPPED),  # the launcher lost its patience
        ((1, 1), (TOLD, ERROR), Ending.STOPPED),
        ((SEGV, TERM), (TOLD,), Ending.CRASHED),
        ((1, TERM), (TOLD, BROKEN), Ending.CRASHED),  # other nodes' launchers are told to stop when one has failed
        ((1, TERM), (), Ending.CRASHED),
        ((3, 0), (), Ending.CRASHED),
        ((TERM, KILL), (), Ending.CRASHED),
    ],
)
def test_how_a_job_ended(statuses: tuple[int | None, ...], findings: tuple[Finding, ...], expected: Ending) -> None:
    assert ending(exits(*statuses), findings) is expected


def test_who_is_killed_with_its_launcher_was_removed() -> None:
    assert ending(exits(KILL, KILL), (), launcher_killed_s=100.2) is Ending.STOPPED
    assert ending(exits(KILL, KILL), (), launcher_killed_s=140.0) is Ending.CRASHED
    assert ending(exits(KILL, KILL), ()) is Ending.CRASHED
    assert ending(exits(KILL, 1), (), launcher_killed_s=100.2) is Ending.CRASHED
    assert ending(exits(KILL, KILL, oom=True), (), launcher_killed_s=100.2) is Ending.CRASHED


def test_the_first_of_those_that_failed_comes_first() -> None:
    fell = failed(
        [Exit(Rank(2), 1, 5.0), Exit(Rank(0), 0, 1.0), Exit(Rank(1), SEGV, 4.0), Exit(Rank(3), TERM, 2.0)], ()
    )
    assert [one.rank for one in fell] == [1, 2]


def test_a_rank_that_was_interrupted_did_not_fail() -> None:
    interrupted = Finding("log", "interrupted", Impact.TELLS_NOTHING, "somebody interrupted the program", rank=Rank(0))
    assert ending(exits(1, INT), (interrupted,)) is Ending.STOPPED
