"""What mpirun, prterun, torchrun without its list, DeepSpeed and Ray say of a process that ended."""

import re

import pytest

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.reading.logs import training_log

NOTICED = "{launcher} noticed that process rank 5 with PID {pid} on node {host} exited on signal {number} ({words}).\n"
FIRST = (
    "{launcher} detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated."
    " The first process to do so was:\n\n  Process name: {name}\n  Exit code:    {code}\n"
)
TORCHRUN = "E1102 03:04:05.678 71 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: 6 (pid: 903) of binary: /opt/bin/python3\n"
LIST = """Root Cause (first observed failure):
[0]:
  time      : 2026-11-25_09:00:05
  host      : gpu-k
  rank      : 14 (local_rank: 6)
  exitcode  : {code} (pid: 903)
  error_file: <N/A>
  traceback : Signal received by PID 903
============================================================
"""
ACTOR = (
    "ray.exceptions.{name}: The actor died unexpectedly before finishing this task.\n\tclass_name: Trainer\n"
    "\tactor_id: 6b2f\n\tpid: 903\n\tnamespace: 7c1e\n\tip: {ip}\nThe actor is dead because its {what}\n"
)
NODE = "node has died. Node Id: 31aa"
WORKER = (
    "worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection"
    " error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage."
)


def findings(text: str, rank: int | None = None) -> list[Finding]:
    streams = training_log.read(text, None if rank is None else Rank(rank))
    return [finding for stream in streams for finding in stream.findings]


@pytest.mark.parametrize("launcher", ["mpirun", "mpiexec", "prterun", "orterun"])
@pytest.mark.parametrize(
    ("number", "code", "impact"),
    [
        (11, "segmentation fault", Impact.PROGRAM),
        (9, "killed", Impact.VICTIM),
        (6, "aborted", Impact.VICTIM),
        (15, "ended by the launcher", Impact.TELLS_NOTHING),
    ],
)
def test_mpirun_says_which_rank_a_signal_ended(launcher: str, number: int, code: str, impact: Impact) -> None:
    text = NOTICED.format(launcher=launcher, pid=903, host="gpu-k", number=number, words="x")
    assert training_log.recognises(text)
    (finding,) = findings(text)
    assert (finding.code, finding.impact, finding.rank, finding.machine) == (code, impact, 5, "gpu-k")
    assert re.search(rf"\brank 5 \(process 903 on gpu-k\) .*\bsignal {number}\b", finding.what)


@pytest.mark.parametrize("name", ["[[20417,1],5]", "[prterun-gpu-k-711@1,5]"])
@pytest.mark.parametrize(
    ("status", "code", "impact"),
    [
        (1, "first observed failure", Impact.VICTIM),
        (139, "segmentation fault", Impact.PROGRAM),
        (137, "killed", Impact.VICTIM),
        (255, "first observed failure", Impact.VICTIM),
    ],
)
def test_the_first_process_with_an_exit_code_has_a_rank(name: str, status: int, code: str, impact: Impact) -> None:
    text = FIRST.format(launcher="mpirun", name=name, code=status)
    assert training_log.recognises(text)
    (finding,) = findings(text)
    assert (finding.code, finding.impact, finding.rank) == (code, impact, 5)
    assert f"with exit code {status}" in finding.what


def test_a_name_without_an_exit_code_ended_nothing() -> None:
    assert findings("  Process name: [[20417,1],5]\n" + "so much for that\n" * 9 + "  Exit code:    1\n") == []


@pytest.mark.parametrize(
    "rest", [" There are three reasons this could occur:", "\nimproperly. There are three reasons this could occur:"]
)
@pytest.mark.parametrize("before", ["on\nnode gpu-k", "on node gpu-k"])
def test_a_process_that_left_without_a_word_is_named_with_its_machine(before: str, rest: str) -> None:
    words = "exiting improperly." if rest.startswith(" ") else "exiting"
    (finding,) = findings(f"prterun has exited due to process rank 5 with PID 903 {before} {words}{rest}\n")
    assert (finding.code, finding.impact, finding.rank, finding.machine) == (
        "first observed failure", Impact.VICTIM, 5, "gpu-k",
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        # aws/aws-parallelcluster#301, Open MPI 2
        " ORTE has lost communication with its daemon located on node:\n\n   hostname:  gpu-k\n\n This is usually due to",
        # open-mpi/ompi#6618, openpmix/prrte#2694
        "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[11,0],0] on node gpu-a\n  Remote daemon: [[11,0],1] on node gpu-k\n",
        (
            "PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [prterun-gpu-a-71@0,0] on node gpu-a\n"
            "  Remote daemon: [prterun-gpu-a-71@0,1] on node gpu-k\n"
        ),
    ],
)
def test_a_launcher_that_lost_its_daemon_says_where(text: str) -> None:
    assert training_log.recognises(text)
    assert [(one.code, one.impact, one.machine) for one in findings(text)] == [
        ("launcher lost a daemon", Impact.VICTIM, "gpu-k")
    ]


def test_a_host_name_of_something_else_is_no_lost_daemon() -> None:
    lost = " ORTE has lost communication with its daemon located on node:\n"
    assert findings(lost + "so much for that\n" * 5 + "   hostname:  gpu-k\n") == []
    assert findings("Traceback (most recent call last)\n   hostname:  gpu-k\n") == []


@pytest.mark.parametrize(("of", "count"), [("MPI_COMM_WORLD", 1), ("MPI COMMUNICATOR 4 DUP FROM 0", 0)])
def test_who_aborted_is_known_by_the_numbers_of_the_world_only(of: str, count: int) -> None:
    text = f"MPI_ABORT was invoked on rank 5 in communicator {of}\nwith errorcode 1.\n"
    assert [(one.code, one.rank) for one in findings(text)] == [("aborted", 5)] * count


def test_a_crash_that_its_launcher_tells_of_as_well_is_one() -> None:
    text = "[gpu-k:903] *** Process received signal ***\n[gpu-k:903] Signal: Segmentation fault (11)\n"
    text += NOTICED.format(launcher="mpirun", pid=903, host="gpu-k", number=11, words="Segmentation fault")
    assert [(one.code, one.rank) for one in findings(text)] == [("segmentation fault", 5)]


@pytest.mark.parametrize(
    ("status", "code", "impact"),
    [
        (-9, "killed", Impact.VICTIM),
        (-11, "segmentation fault", Impact.PROGRAM),
        (1, "first observed failure", Impact.VICTIM),
    ],
)
def test_torchruns_line_alone_names_a_local_rank_and_no_rank_of_the_job(status: int, code: str, impact: Impact) -> None:
    (finding,) = findings(TORCHRUN.format(code=status))
    assert (finding.code, finding.impact, finding.rank, finding.ranks) == (code, impact, None, ())
    assert "local rank 6 (process 903)" in finding.what


def test_torchruns_list_says_it_better_than_its_line() -> None:
    (finding,) = findings(TORCHRUN.format(code=-9) + LIST.format(code=-9))
    assert (finding.code, finding.rank, finding.machine) == ("killed", 14, "gpu-k")


def test_deepspeed_tells_that_one_was_killed_and_not_which() -> None:
    line = "[2026-01-02 03:04:05,678] [ERROR] [launch.py:325:sigkill_handler] ['/opt/bin/python3', 'go.py', '--local_rank=7'] exits with return code = {}\n"
    (finding,) = findings("torch.distributed\n" + line.format(-9))
    assert (finding.code, finding.impact, finding.rank) == ("killed", Impact.VICTIM, None)
    assert "local_rank" not in finding.what
    assert findings("torch.distributed\n" + line.format(1)) == []


def test_ray_lost_the_machine_of_an_actor() -> None:
    found = findings(ACTOR.format(name="RayActorError", ip="10.7.0.4", what=NODE))
    assert [(one.code, one.impact, one.machine) for one in found if one.machine] == [
        ("node failure", Impact.RESET, "10.7.0.4")
    ]


@pytest.mark.parametrize(("ip", "machine"), [("10.7.0.4", "10.7.0.4"), ("127.0.0.1", "")])
def test_a_worker_that_vanished_was_not_killed_for_memory_by_rays_list_of_what_may_be(ip: str, machine: str) -> None:
    found = findings(ACTOR.format(name="ActorDiedError", ip=ip, what=WORKER))
    assert [(one.code, one.impact, one.machine) for one in found if one.code == "worker vanished"] == [
        ("worker vanished", Impact.VICTIM, machine)
    ]
    assert all(one.impact is Impact.VICTIM for one in found)
    assert any("Trainer (process 903) vanished" in one.what for one in found)


def test_fields_of_an_exception_before_belong_to_that_one() -> None:
    before = ACTOR.format(name="RayActorError", ip="10.7.0.4", what="owner has died.")
    assert {one.machine for one in findings(f"{before}The actor is dead because its {NODE}\n")} == {""}


@pytest.mark.parametrize(
    "error", ["RendezvousConnectionError: The connection to the C10d store has failed.", "RendezvousTimeoutError"]
)
def test_a_launcher_that_fails_before_it_starts_a_rank_leaves_a_log_of_the_job(error: str) -> None:
    """A whole log of torchrun of torch 1.9 held no other mark (pytorch/pytorch issue 64926)."""
    text = f"[INFO] Starting elastic_operator with launch configs:\n  entrypoint : main.py\n{error}\n"
    assert training_log.recognises(text) and not training_log.recognises(text.replace("Rendezvous", ""))
