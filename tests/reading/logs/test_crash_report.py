"""The line by which a library says that a signal ended its process: whose it is, and when it follows from something else."""

import pytest

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.reading.logs import training_log
from hangdog_models.reading.stacks import faulthandler

SEGV = "*** SIGSEGV (@0x8), see gl#s15 received by PID 71 (TID 72) on cpu 17; stack trace: ***"
UCX = "[pod-1:71  :0:71] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x28)"


def findings(text: str, rank: int | None = None) -> list[Finding]:
    streams = training_log.read(text, None if rank is None else Rank(rank))
    return [finding for stream in streams for finding in stream.findings]


@pytest.mark.parametrize(
    ("line", "code", "impact", "machine", "who"),
    [
        (SEGV, "segmentation fault", Impact.PROGRAM, "", "process 71"),
        ("*** SIGABRT received at time=1700000000 on cpu 3 ***", "aborted", Impact.VICTIM, "", "a process"),
        ("W1108 x.cc:2] *** SIGABRT (@0x1f8) received by PID 71 (TID 0x7f) from PID 71; stack trace: ***", "aborted", Impact.VICTIM, "", "process 71"),
        ("*** SIGTERM received by PID 71 (TID 71) on cpu 3 from PID 1; stack trace: ***", "told to stop", Impact.TELLS_NOTHING, "", "process 71"),
        ("[gpu-a:71] Signal: Aborted (6)", "aborted", Impact.VICTIM, "gpu-a", "process 71"),
        ("[gpu-a:71] Signal: Bus error (7)", "bus error", Impact.PROGRAM, "gpu-a", "process 71"),
        (UCX, "segmentation fault", Impact.PROGRAM, "pod-1", "process 71"),
        ("[pod-1:71:0] Caught signal 8 (Floating point exception)", "arithmetic error", Impact.PROGRAM, "pod-1", "process 71"),
        ("SIGSEGV(11), PID: 71, Thread 72: ", "segmentation fault", Impact.PROGRAM, "", "process 71"),
    ],
)  # fmt: skip
def test_each_form_tells_the_process(line: str, code: str, impact: Impact, machine: str, who: str) -> None:
    (one,) = findings(f"torch.distributed\n{line}\n")
    assert (one.code, one.impact, one.machine) == (code, impact, machine)
    assert one.what.startswith(who)


def test_the_prefix_tells_the_rank() -> None:
    (one,) = findings(f"Fri Nov  8 14:58:45 2026[1,9]<stdout>:{SEGV}\n")
    assert one.rank == 9


def test_several_processes_of_one_log_are_told_apart() -> None:
    found = findings(f"{UCX}\n{UCX.replace('71', '72')}\n{UCX}\n")
    assert [(one.what.split()[1], one.times) for one in found] == [("71", 2), ("72", 1)]


def test_an_abort_hides_no_segmentation_fault_after_it() -> None:
    found = findings(f"[gpu-a:71] Signal: Aborted (6)\n{UCX}\n")
    assert [one.code for one in found] == ["aborted", "segmentation fault"]


def test_a_crash_after_an_error_of_the_rank_follows_from_it() -> None:
    found = findings(f"ncclRemoteError: x\n{SEGV}\n", rank=3)
    assert [one.code for one in found] == ["NCCL remote error"]


def test_signals_that_end_nothing_say_nothing() -> None:
    assert findings("torch.distributed\n[a:1] Signal: Child exited (17)\n[a:1:0:1] Caught signal 99 (x)\n") == []


FATAL = """Fatal Python error: {what}

Thread 0x00007f0000000002 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 359 in wait

Current thread 0x00007f0000000001 (most recent call first):
  File "/opt/site-packages/torch/nn/modules/linear.py", line 134 in forward
  File "/srv/train.py", line 9 in <module>
"""


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("Segmentation fault", "segmentation fault"),
        ("Bus error", "bus error"),
        ("Floating-point exception", "arithmetic error"),
        ("Illegal instruction", "illegal instruction"),
    ],
)
def test_where_python_died_is_told_and_is_no_stack_of_a_living_process(what: str, code: str) -> None:
    """Whoever is dead does not wait in `forward`; as in a paste of DeepSpeed users, and in every log of PYTHONFAULTHANDLER."""
    text = "epoch 5, loss 6.4\n" + FATAL.format(what=what)
    assert training_log.recognises(text) and faulthandler.read(text) == ()
    (one,) = (found for stream in training_log.read(text, Rank(1)) for found in stream.findings)
    assert (one.code, one.impact, one.rank) == (code, Impact.PROGRAM, 1)
    assert "forward" in one.what and "linear.py:134" in one.what and "threading" not in one.what


def test_a_job_that_dies_at_every_start_is_told_of_once_and_shortly() -> None:
    text = "".join(FATAL.format(what="Segmentation fault") for _ in range(300))
    (one,) = (found for stream in training_log.read(text, Rank(1)) for found in stream.findings)
    assert one.what.count("linear.py") == 1 and len(one.what) < 500


def test_an_abort_may_be_how_somebody_had_the_stacks_printed() -> None:
    text = FATAL.format(what="Aborted")
    assert len(faulthandler.read(text)) == 1
    assert not [found for stream in training_log.read(text, Rank(1)) for found in stream.findings]


@pytest.mark.parametrize(
    ("line", "code", "impact"),
    [
        ("Exception: process 1 terminated with signal SIGSEGV", "segmentation fault", Impact.PROGRAM),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL", "killed", Impact.VICTIM),
    ],
)  # fmt: skip
def test_a_spawned_process_that_a_signal_ended_is_told(line: str, code: str, impact: Impact) -> None:
    found = [one for stream in training_log.read(line + "\n", None) for one in stream.findings]
    assert training_log.recognises(line) and (found[0].code, found[0].impact) == (code, impact)


def test_an_exception_of_c_plus_plus_is_told_and_accuses_nobody() -> None:
    text = "terminate called after throwing an instance of 'x::Error'\n  what():  [x] Assertion failed: MPI error 6\n"
    (one,) = (found for stream in training_log.read(text, None) for found in stream.findings)
    assert training_log.recognises(text) and (one.code, one.impact) == ("C++ exception", Impact.VICTIM)
    assert "MPI error 6" in one.what
