"""Trainers in pid namespaces of their own, as pods have them: the agent on the host, and beside them as a sidecar."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.confinement.capabilities import CAPABILITIES
from hangdog_agent.discovery.discover import find
from hangdog_agent.discovery.owners import container
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.doctor import doctor
from hangdog_agent.doctor.doctor import Health
from hangdog_agent.procfs import Proc, Status
from hangdog_models.ranks import Rank
from hangdog_models.stack import TRAINER, Frame, ProcessTrace, Reason, Thread
from support.fakes import targets
from support.fakes.targets import proc

#: Waits in two places until its input is closed: the main thread is told from the other by what it does.
TWO_THREADS = """
import os, threading
def helper():
    held.acquire()
def stuck_here():
    os.write(1, b"ready\\n")
    os.read(0, 1)
held = threading.Lock()
held.acquire()
threading.Thread(target=helper, daemon=True).start()
stuck_here()
"""
JOB = f"containers-{os.getpid()}"
RANK = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "HANGDOG_JOB": JOB}
#: Namespaces such as a pod's: its process number 1 is ours, and its /proc shows its own processes only.
POD = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
CALL = (sys.executable, "-I", "-c")


def permitted() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*POD, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not permitted(), reason="no pid namespace may be made here: run the tests as root")


@contextlib.contextmanager
def pod(*command: str | Path, **environ: str) -> Iterator[None]:
    """A trainer in a pid namespace of its own, once it is ready."""
    call = [*POD, *command]
    with subprocess.Popen(
        call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | RANK | environ
    ) as outer:
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline() == b"ready\n"
            yield
        finally:
            outer.kill()  # --kill-child: what is below it goes with it


def examined(*before: str) -> dict[str, tuple[str, str, str]]:
    """What doctor says where `before` leads to, as in Kubernetes: name to health, what and fix."""
    asked = subprocess.run(
        [*before, sys.executable, "-m", "hangdog", "doctor", "--format", "json"],
        env=os.environ | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    findings = json.loads(asked.stdout)["findings"]
    return {finding["name"]: (finding["health"], finding["what"], finding["fix"]) for finding in findings}


def traces(tools: Tools) -> tuple[ProcessTrace, ...]:
    return CaptureSeries(JOB, lambda: find(ProcessTable(tools.proc).take(), ("HANGDOG_JOB", JOB)), tools).look()


def test_from_the_host_stacks_and_thread_numbers_are_right(tools: Tools) -> None:
    with pod(*CALL, TWO_THREADS):
        (trace,) = traces(tools)
        assert trace.pid is not None
        status, tids = proc.status(trace.pid), set(proc.tids(trace.pid))
    assert (trace.rank, trace.missing) == (5, None)
    assert status is not None and status.pids == (trace.pid, 1), "the trainer lives in a namespace of its own"
    where = {
        next(frame.function for frame in thread.frames if frame.function in PLACES): thread for thread in trace.threads
    }
    assert set(where) == set(PLACES)
    assert where["stuck_here"].tid == trace.pid
    assert {thread.tid for thread in trace.threads} == tids
    assert not any(thread.active for thread in trace.threads)  # py-spy says of all of them that they run


PLACES = ("stuck_here", "helper")


def test_from_the_host_without_the_right_the_reason_says_so(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    targets.run_tools_as_nobody(monkeypatch)
    with pod(*CALL, TWO_THREADS):
        (trace,) = traces(tools)
    assert trace.missing is not None and trace.missing.reason is Reason.NOT_PERMITTED
    assert trace.state is not None and trace.state.state == "S"  # what the kernel tells everybody is kept


def test_an_image_of_its_own_does_not_hide_the_interpreter(tools: Tools, tmp_path: Path) -> None:
    """The program lies at a path that exists in the trainer's mount namespace only."""
    image = tmp_path / "image"
    image.mkdir()
    program = Path(sys.executable).resolve()
    within = image / program.relative_to(sys.base_prefix)
    script = f'mount --bind {sys.base_prefix} {image} && exec {within} -c "$0"'
    with pod("sh", "-c", script, TWO_THREADS, PYTHONHOME=os.fspath(image)):
        assert not within.exists()
        (trace,) = traces(tools)
    assert trace.missing is None
    assert {frame.function for thread in trace.threads for frame in thread.frames} >= set(PLACES)


def test_a_sidecar_sees_the_trainers_of_its_pod_under_their_numbers_there(tmp_path: Path) -> None:
    """Agent and trainer share a pid namespace, as with `shareProcessNamespace: true`."""
    script = f'mkfifo "$1/line" && {sys.executable} -I -c "$0" <>"$1/line" >"$1/said" & '
    script += f'until [ -s "$1/said" ]; do sleep 0.02; done; {sys.executable} -m hangdog_agent.main --once'
    call = (*POD, "sh", "-c", script, TWO_THREADS, os.fspath(tmp_path))
    said = subprocess.run(call, env=os.environ | RANK, capture_output=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    (job,) = json.loads(said.stdout)["jobs"]
    (trace,) = job["traces"]
    assert (job["name"], trace["rank"], trace["missing"]) == (JOB, 5, None)
    assert 1 < trace["pid"] < 100
    names = {frame["function"] for thread in trace["threads"] for frame in thread["frames"]}
    assert names >= set(PLACES)


def test_doctor_names_host_pid_where_the_agent_is_alone_in_its_container() -> None:
    health, _, fix = examined(*POD)["pid namespace"]
    assert health == "warn"
    assert fix.startswith("hostPID: true")
    assert "shareProcessNamespace: true" in fix


@pytest.mark.slow
@pytest.mark.parallel
@pytest.mark.parametrize(
    ("dropped", "expected"),
    [
        ("", {f"job {JOB}": Health.OK, "CAP_SYS_PTRACE": Health.OK, "kernel log": Health.OK}),
        ("SYS_PTRACE", {"CAP_SYS_PTRACE": Health.WARN, "other users": Health.FAIL}),
        ("DAC_READ_SEARCH", {"CAP_DAC_READ_SEARCH": Health.WARN, "other users": Health.FAIL}),
        ("SETUID", {"CAP_SETUID": Health.FAIL, f"job {JOB}": Health.FAIL}),
        ("SETGID", {"CAP_SETGID": Health.FAIL, f"job {JOB}": Health.FAIL}),
        ("SETPCAP", {"CAP_SETPCAP": Health.FAIL, f"job {JOB}": Health.FAIL}),
        ("SYSLOG", {"kernel log": Health.WARN, f"job {JOB}": Health.OK}),
    ],
)
def test_the_manifest_s_capabilities_are_enough_and_none_of_them_too_much(
    dropped: str, expected: dict[str, Health]
) -> None:
    """For a trainer of another user in another container; doctor names the one that lacks."""
    if dropped == "SYSLOG" and proc.setting("sys/kernel/dmesg_restrict") != "1":
        pytest.skip("this kernel lets everybody read its log: sysctl kernel.dmesg_restrict=1")
    bound = ",".join(["-all", *(f"+{one.name.lower()}" for one in CAPABILITIES if one.name != dropped)])
    with pod("setpriv", "--reuid=65534", "--clear-groups", *CALL, TWO_THREADS):
        findings = examined("setpriv", f"--bounding-set={bound}", "--inh-caps=-all", "--no-new-privs")
    for name, health in expected.items():
        stands, _, line = findings[name]
        assert stands == health, findings
        assert health is Health.OK or f'add: ["{dropped}"]' in line
    assert (f"job {JOB}" in findings) is (f"job {JOB}" in expected)


ID = "5f3c" * 16
UID = "0b1a2c3d-1111-4222-8333-abcdefabcdef"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # cgroup v2, systemd driver, containerd
        (
            f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope\n",
            f"pod {UID}, container 5f3c5f3c5f3c",
        ),
        # cgroup v1, cgroupfs driver
        (f"9:cpu:/\n4:memory:/kubepods/burstable/pod{UID}/{ID}\n", f"pod {UID}, container 5f3c5f3c5f3c"),
        (f"0::/system.slice/docker-{ID}.scope\n", "container 5f3c5f3c5f3c"),
        (f"4:memory:/docker/{ID}\n", "container 5f3c5f3c5f3c"),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", "container 5f3c5f3c5f3c"),
        ("0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_3\n", "Slurm job 77"),
        ("4:memory:/slurm/uid_1000/job_78/step_batch\n", "Slurm job 78"),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", ""),
        ("0::/\n", ""),
        ("", ""),
        ("0::/kubepods/pod" + "x" * 5000, ""),
    ],
)
def test_a_control_group_names_its_container(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "cgroup").write_text(text)
    assert container(Proc(tmp_path), 42) == name
    assert container(Proc(tmp_path), 43) == ""


THREADS = (Thread("MainThread", 40, (Frame("f", "f.py"),)),)


def test_doctor_says_in_which_container_a_job_is(tmp_path: Path) -> None:
    traces = []
    for rank, container_id in enumerate(("a" * 64, "b" * 64, "c" * 64, "c" * 64)):
        (tmp_path / f"{40 + rank}").mkdir()
        (tmp_path / f"{40 + rank}" / "cgroup").write_text(f"0::/system.slice/docker-{container_id}.scope\n")
        traces.append(ProcessTrace(Rank(rank), TRAINER, 40 + rank, threads=THREADS))
    finding = doctor._job("llama", traces, Proc(tmp_path), Status())
    assert finding.health is Health.OK
    values = (
        "4 processes ",
        "ranks 0-3 ",
        "container aaaaaaaaaaaa,",
        "container bbbbbbbbbbbb ",
        "1 more",
        "all captured",
    )
    assert all(value in finding.what for value in values)
    assert "ended before" in doctor._job("gone", (), Proc(tmp_path), Status()).what


def test_a_hostile_control_group_is_read_in_no_time(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "cgroup").write_text("kubepods-pod" * 50_000)
    begun = time.thread_time()
    assert container(Proc(tmp_path), 42) == ""
    assert time.thread_time() - begun < 2.0
