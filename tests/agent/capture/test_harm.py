"""Whatever becomes of the agent and of its tools, a trainer is left as it was: real agents, killed or given broken tools."""

import contextlib
import ctypes
import importlib.metadata
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from hangdog_agent.capture.pyspy import PySpy
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated import hangdog_pb2_grpc as rpc
from support.fakes import targets
from support.fakes.targets import SLEEP_IN_KERNEL, WAIT, letter, running

pytestmark = pytest.mark.slow  # it measures time

MARK = ("HANGDOG_TEST_HARM", str(os.getpid()))
#: So many threads and frames that a py-spy which stops them all is easily met at it.
CROWD = """
import os, threading
def deep(frames, then):
    return deep(frames - 1, then) if frames else then()
never = threading.Event()
for _ in range(60):
    threading.Thread(target=deep, args=(30, never.wait), daemon=True).start()
os.write(1, b"ready\\n")
deep(30, lambda: os.read(0, 1))
os._exit(0)
"""
PYSPY = next(file for file in importlib.metadata.files("py-spy") or () if file.name == "py-spy").locate()
#: Tools that do as they are told, that fail unless they may attach, and that attach though they must not.
HONEST = f'exec {PYSPY} "$@"'
INSISTENT = f'case "$*" in *--nonblocking*) echo "Bad address" >&2; exit 1;; esac; {HONEST}'
TRESPASSING = f"for last; do :; done; exec {PYSPY} dump --json --pid $last"
PR_SET_CHILD_SUBREAPER = 36


def environ(rank: int) -> dict[str, str]:
    return dict([MARK], RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="8", HANGDOG_JOB="harm")


@pytest.fixture(autouse=True)
def orphans_are_ours(leaves_nothing: None, spy: PySpy) -> Iterator[None]:
    """Orphans come to us as they would to init, and as init we bury the dead: one that lives on is a child too many."""
    before = targets.children().keys()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(0))
    bury(before)


def bury(known: Collection[int]) -> None:
    """Waits for the orphans to be dead, and reaps them."""
    targets.until(lambda: all(state == "Z" for pid, state in targets.children().items() if pid not in known), 2.0)
    for pid in targets.children().keys() - set(known):
        os.waitpid(pid, 0)


class Tool:
    """A package `py-spy` that an agent finds before the real one: a shell script, which notes its pid and arguments."""

    def __init__(self, folder: Path, script: str) -> None:
        info = folder / "py_spy-9.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: py-spy\nVersion: 9\n")
        (info / "RECORD").write_text("py-spy,,\n")
        self._calls = folder / "calls"
        self._calls.mkdir()
        program = f'[ "$1" = --version ] && exec echo py-spy 9\n{targets.note(self._calls, "$$ $*")}\n{script}'
        (folder / "py-spy").write_text(f"#!/bin/sh\n{program}\n")
        (folder / "py-spy").chmod(0o755)
        self.environ = {"PYTHONPATH": str(folder)}

    def calls(self) -> list[tuple[int, str]]:
        """The pid and the arguments of each call up to now."""
        words = (line.partition(" ") for line in targets.recorded_calls(self._calls))
        return [(int(pid), arguments) for pid, _, arguments in words]

    def attached(self, pid: int) -> list[bool]:
        """Of each call that was about a process: whether it was allowed to stop it."""
        return ["--nonblocking" not in told for _, told in self.calls() if told.endswith(f"--pid {pid}")]


@contextlib.contextmanager
def agent(
    tool: Tool, *arguments: str, settings: Mapping[str, float] | None = None, under: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    command = [*under, sys.executable, "-m", "hangdog_agent.main", "--match-env", "=".join(MARK), *arguments]
    command += [word for name, value in (settings or {}).items() for word in ("--set", f"{name}={value}")]
    with subprocess.Popen(command, env={**os.environ, **tool.environ}, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


class Orders(rpc.AgentsServicer):
    """A server that has every agent look at the job again and again, or at the native stacks of some ranks."""

    def __init__(self, native: Sequence[int] = ()) -> None:
        self._native = native

    def Connect(self, request_iterator: Any, context: Any) -> Iterator[pb.ToAgent]:
        yield pb.ToAgent(welcome=pb.Welcome(heartbeat_s=60.0))
        with contextlib.suppress(Exception):  # the agent is killed
            if any(message.HasField("presence") and message.presence.jobs for message in request_iterator):
                yield pb.ToAgent(capture=pb.CaptureOrder(order="1", job="harm", rounds=100, native=self._native))
            for _ in request_iterator:
                pass


@pytest.fixture
def orders() -> Iterator[str]:
    with ordering(Orders()) as address:
        yield address


@contextlib.contextmanager
def ordering(orders: Orders) -> Iterator[str]:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        rpc.add_AgentsServicer_to_server(orders, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(0).wait()


def states(pid: int) -> set[str]:
    return {stat.state for tid in targets.proc.tids(pid) if (stat := targets.proc.stat(pid, tid))}


def tracer(pid: int) -> int:
    status = targets.proc.status(pid)
    return status.tracer if status else 0


def peak_kib(pid: int) -> int:
    """The most memory a process ever had; 0 when it is gone."""
    status = targets.proc.raw(pid, "status")
    found = re.search(rb"VmHWM:\s+(\d+) kB", status) if isinstance(status, bytes) else None
    return int(found[1]) if found else 0


def test_a_tool_that_hangs_in_a_trainer_does_not_outlive_its_agent(tmp_path: Path, hold: Path) -> None:
    """The trap itself: py-spy waits for ever for a thread stuck in the kernel, and holds all others stopped meanwhile."""
    tool = Tool(tmp_path, TRESPASSING)
    with running(SLEEP_IN_KERNEL, str(hold), "other", environ=environ(0)) as target:
        targets.until(lambda: "D" in states(target.pid))
        with agent(tool, "--once", settings={"nonblocking_s": 60, "look_s": 60}) as process:
            targets.until(lambda: tracer(target.pid) != 0 and "t" in states(target.pid))
            process.kill()
        targets.until(lambda: not tracer(target.pid) and states(target.pid) == {"S", "D"}, 1.0)


@pytest.mark.parametrize("script", [HONEST, INSISTENT], ids=["reading", "attached"])
@pytest.mark.parametrize(
    "kills",
    [
        2,
        pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
    ids=["", "some", "many"],
)
def test_an_agent_killed_in_the_middle_of_a_capture_leaves_no_trace(
    tmp_path: Path, orders: str, hold: Path, kills: int, script: str
) -> None:
    chance, met = random.Random(kills), 0
    with (
        running(CROWD, environ=environ(0)) as first,
        running(CROWD, environ=environ(1)) as second,
        running(SLEEP_IN_KERNEL, str(hold), "other", environ=environ(2)) as stuck,
    ):
        mine = {*targets.children()}
        for number in range(4 * kills):  # some tools end just before they are met
            (folder := tmp_path / str(number)).mkdir()
            tool = Tool(folder, script)
            with agent(tool, "--server", orders, settings={"scan_s": 0.1}) as process:
                meet(tool, (first.pid, second.pid) if script is INSISTENT else (), chance.uniform(0.0, 0.1))
                process.kill()
            met += any(pid in targets.children() for pid, _ in tool.calls())  # the agent had not reaped it
            bury(mine)
            for trainer in (first, second, stuck):
                assert not tracer(trainer.pid)
                assert not states(trainer.pid) & set("TtZX")
            assert not any(tool.attached(stuck.pid))
            if met == kills:
                break
    assert met == kills


def test_an_agent_killed_while_it_holds_a_trainer_for_its_native_stack_leaves_no_trace(tmp_path: Path) -> None:
    tool = Tool(tmp_path, HONEST)
    with ordering(Orders([0])) as address, running(CROWD, environ=environ(0)) as target:
        mine = {*targets.children()}
        with agent(tool, "--server", address, settings={"scan_s": 0.1}) as process:
            targets.until(lambda: tracer(target.pid) != 0)
            process.kill()
        bury(mine)
        assert not tracer(target.pid) and not states(target.pid) & set("TtZX")
        assert "--native" in tool.calls()[-1][1]


def meet(tool: Tool, held: Sequence[int], after_s: float) -> None:
    """Returns when the tool is at work, some time after it began: with a process it holds, where such are named."""
    targets.until(lambda: tool.calls() != [])
    threading.Event().wait(after_s)
    if held:
        targets.until(lambda: any(tracer(pid) for pid in held))
    else:
        targets.until(lambda: any(letter(pid) in ("R", "S") for pid, _ in tool.calls()[-3:]))


def test_nobody_attaches_to_a_trainer_with_a_thread_stuck_in_the_kernel(tmp_path: Path, hold: Path) -> None:
    """Told by the tool's own notes and, where strace is here, by the kernel; a healthy trainer shows that both would tell."""
    tool, trace = Tool(tmp_path, INSISTENT), tmp_path / "trace"
    strace = ("strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=ptrace", "-e", "signal=none", "-o", str(trace))
    with (
        running(SLEEP_IN_KERNEL, str(hold), "main", environ=environ(0)) as main,
        running(SLEEP_IN_KERNEL, str(hold), "other", environ=environ(1)) as other,
        running(CROWD, environ=environ(2)) as healthy,
    ):
        targets.until(lambda: all("D" in states(target.pid) for target in (main, other)))
        with agent(tool, "--once", under=strace if shutil.which("strace") else ()) as process:
            said, _ = process.communicate(timeout=60)
        assert tool.attached(main.pid) == tool.attached(other.pid) == [False, False, False]
        assert tool.attached(healthy.pid) == [False, False, False, True]
        missing = [each["missing"] for each in json.loads(said)["jobs"][0]["traces"] if each["role"] == "trainer"]
        assert [each and each["reason"] for each in missing] == ["uninterruptible sleep", "uninterruptible sleep", None]
        if trace.exists():
            traced = {int(tid) for tid in re.findall(r"ptrace\(PTRACE_\w+, (\d+)", trace.read_text())}
            assert traced & {*targets.proc.tids(healthy.pid)}
            assert not traced & {*targets.proc.tids(main.pid), *targets.proc.tids(other.pid)}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("trap '' TERM INT HUP; while :; do :; done", "timed out"),
        ("exec cat /dev/zero", "capture tool failed"),
        ("head -c 100000000 /dev/zero | tr '\\0' x", "capture tool failed"),
        ("printf '[{}'; yes ',{}' | tr -d '\\n' | head -c 8000001; echo ']'", "capture tool failed"),
        ("head -c 1000000 /dev/urandom", "capture tool failed"),
        ("kill -SEGV $$", "capture tool failed"),
        ("kill -STOP $$", "timed out"),
        ("sleep 60 & exit 0", "timed out"),
        ("sleep 60 <&- >&- 2>&- & exit 1", "capture tool failed"),
    ],
    ids=["deaf", "flood", "long line", "crowd", "garbage", "crash", "stopped", "child", "silent child"],
)
def test_a_broken_tool_costs_its_stack_and_nothing_else(tmp_path: Path, script: str, reason: str) -> None:
    settings = {"nonblocking_s": 0.4, "look_s": 1.0, "retries": 0, "blocking_s": 0.4}
    if reason != "timed out":  # what fails has the time that a busy machine takes to tell
        settings |= {"nonblocking_s": 3.0, "look_s": 4.0}
    with running(WAIT, environ=environ(0)) as target:
        began = time.monotonic()
        with agent(Tool(tmp_path, script), "--once", settings=settings) as process:
            peak, pause = 0, threading.Event()
            while process.poll() is None:  # what wait4(2) tells begins with the memory of whoever started it
                peak = max(peak, peak_kib(process.pid))
                pause.wait(0.005)
            assert process.stdout is not None
            said = process.stdout.read()
        assert process.returncode == 0
        assert time.monotonic() - began < 5.0
        assert 1 << 10 < peak < 80 << 10
        (trace,) = json.loads(said)["jobs"][0]["traces"]
        assert (trace["missing"]["reason"], trace["state"]["state"]) == (reason, "S")
        targets.until(lambda: letter(target.pid) == "S")
