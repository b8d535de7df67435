"""A log alone that tells how the job ended: the first line says who ended first, and nothing of a running job is asked for."""

from pathlib import Path

import pytest

from hangdog.main import main
from hangdog.offline import triage
from hangdog_models.verdict import Act, JobCrash, Kind
from hangdog_models.views.first_line import headline
from support.cases.reasons import words_of

LIST = """============================================================
train.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2025-06-04_03:12:40
  host      : gpu-17
  rank      : 59 (local_rank: 3)
  exitcode  : {code} (pid: 2315)
  error_file: <N/A>
  traceback : {words}
============================================================
"""
KILLED = LIST.format(code=-9, words="Signal 9 (SIGKILL) received by PID 2315")
BY_ITSELF = LIST.format(code=1, words="To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")
NODE = "slurmstepd: error: *** STEP 188.0 ON gpu-07 CANCELLED AT 2025-06-04T03:12:40 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
SRUN = (
    "srun: error: nid-21: tasks 4-7: Killed\nsrun: Terminating StepId=5.0\nsrun: error: nid-20: tasks 0-3: Terminated\n"
)
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
STORE = "[rank12]:[W604 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3, addr=[gpu-03]:41222, remote=[gpu-00]:29500): failed to recv, got 0 bytes\n"
GAVE_UP = (
    "[rank5]:[E1 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=101, "
    "OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)


def log(folder: Path, text: str) -> Path:
    (folder / "job.log").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("text", "first", "how", "code", "asked"),
    [
        (KILLED, "rank 59 on gpu-17", "by SIGKILL", "collect-who-killed", ("kernel log of gpu-17",)),
        (BY_ITSELF, "rank 59 on gpu-17", "of all that its launcher saw", "collect-first-log", ("log of rank 59",)),
        (NODE, "", "", "collect-scheduler-log", ("sinfo -R", "slurmctld")),
        (SRUN, " on nid-21", "by SIGKILL", "collect-who-killed", ("kernel log of nid-21",)),
        (STORE, "", "", "collect-first-log", ("log of rank 0,", "gpu-00")),
    ],
)
def test_a_job_that_ended_is_asked_for_what_is_left_of_it(
    tmp_path: Path, text: str, first: str, how: str, code: str, asked: tuple[str, ...]
) -> None:
    verdict = triage(log(tmp_path, text))
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert verdict.crash is not None and verdict.crash.how == how
    if first:
        assert first in headline(verdict) and how in headline(verdict)
    else:
        assert verdict.crash == JobCrash() and "crashed" in headline(verdict)
    assert [step.do for step in verdict.next] == [Act.COLLECT, Act.ASK_PEOPLE]
    assert all(one in verdict.next[0].why and one in words_of(verdict.because, code) for one in asked)
    assert "ended it" in verdict.next[1].why


@pytest.mark.parametrize(
    "text",
    [
        "slurmstepd: error: *** STEP 5523.0 ON gpu-0 CANCELLED AT 2026-08-24T01:02:03 ***\nsrun: error: gpu-0: tasks 0-3: Terminated\n",
        "slurmstepd: error: *** JOB 5523 ON gpu-0 CANCELLED AT 2026-08-24T01:02:03 DUE TO TIME LIMIT ***\n",
    ],
)
def test_a_job_that_was_ended_by_order_did_not_crash(tmp_path: Path, text: str) -> None:
    verdict = triage(log(tmp_path, text))
    assert verdict.crash is None and "crashed" not in headline(verdict)
    assert [step.do for step in verdict.next] == [Act.ASK_PEOPLE], "no stacks of a job that is gone"


def test_the_machine_is_that_of_the_rank_and_not_of_another_end(tmp_path: Path) -> None:
    text = KILLED + "srun: error: aaa-1: task 9: Exited with exit code 1\n"
    verdict = triage(log(tmp_path, text))
    assert verdict.crash is not None and (verdict.crash.rank, verdict.crash.machine) == (59, "gpu-17")


def test_a_job_that_hung_before_it_ended_did_not_crash(tmp_path: Path) -> None:
    verdict = triage(log(tmp_path, GAVE_UP + LIST.format(code=-6, words="Signal 6 (SIGABRT) received by PID 2315")))
    assert verdict.crash is None
    assert any("hangs again" in step.why for step in verdict.next)


def test_an_error_that_came_from_another_rank_asks_for_that_ones_log(tmp_path: Path) -> None:
    text = 'Traceback (most recent call last):\n  File "/srv/a.py", line 8, in f\n    go()\nXGBoostError: Encountered EOF. The other end is likely closed.\n'
    verdict = triage(log(tmp_path, text))
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert verdict.crash == JobCrash() and "crashed" in headline(verdict)
    assert verdict.next[0].do is Act.COLLECT and "all ranks" in words_of(verdict.because, "collect-first-log")


def test_where_several_ranks_are_named_none_is_the_first(tmp_path: Path) -> None:
    verdict = triage(log(tmp_path, KILLED + KILLED.replace("rank      : 59", "rank      : 7")))
    assert verdict.crash is not None and verdict.crash.rank is None


def test_nothing_is_asked_of_a_job_that_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["triage", str(log(tmp_path, KILLED))])
    assert "still stands" not in capsys.readouterr().out


def test_stacks_show_that_a_job_runs_again(tmp_path: Path) -> None:
    stack = 'Process 70: python3 train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread 70 (idle): "MainThread"\n    f (train.py:1)\n'
    (tmp_path / "rank0.txt").write_text(stack, encoding="utf-8")
    assert triage(log(tmp_path, KILLED)).crash is None


def test_a_device_failed_where_alone_a_process_ended_by_itself(tmp_path: Path) -> None:
    ended = "srun: error: gpu-3: task 5: Exited with exit code 1\nsrun: error: gpu-0: tasks 0-3: Terminated\n"
    verdict = triage(log(tmp_path, ECC + ended))
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.MACHINE, ("gpu-3",))
    several = triage(log(tmp_path, ECC + ended + "srun: error: gpu-4: task 9: Exited with exit code 1\n"))
    assert several.suspects[0].machines == ("(machine of job.log)",)
