"""Workers of Ray Train: found by the log that Ray keeps of them, felt and read at the thread that trains.

The workers are fakes: real processes under Ray's titles, with a log of Ray's lines held open, and a thread started by a file
of Ray's name. Lines and layout are those of Ray 2.60 with torch 2.13 on gloo, seen in November 2026.
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_agent.capture import native_stacks
from hangdog_agent.capture.process_capture import CapturedProcess, Tools, look
from hangdog_agent.discovery import ray_train
from hangdog_agent.discovery.announced import Announced
from hangdog_agent.discovery.cpu_activity import CpuActivity, mode, sample_cpu
from hangdog_agent.discovery.discover import Key, Process, ProcessRole, RankProcesses, find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.settings import StallSettings
from hangdog_agent.stalls.training_thread import Threads
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stack import Missing, Reason
from hangdog_models.training import training_thread
from support.fakes.targets import proc, running, until

#: As in ray/train/v2/_internal/execution/worker_group/thread_runner.py.
RUNNER = """
import threading
class ThreadRunner:
    def run(self, target):
        def _run_target():
            target()
        self.thread = threading.Thread(target=_run_target, daemon=True, name="TrainingThread(train_fn)")
        self.thread.start()
"""
#: Idle until it is told to train ("t"), which it then does in a thread until it is told to hang ("h"), or to end that ("e").
WORKER = """
import ctypes, os, sys, threading, time
folder, log, lines = sys.argv[1:4]
sys.path.insert(0, folder)
from ray.train.v2._internal.execution.worker_group.thread_runner import ThreadRunner
def call_it(title):  # as setproctitle does with SPT_NOENV, which Ray sets: over the command line, and not beyond it
    with open("/proc/self/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    ctypes.memmove(start, title.encode()[: end - start - 1].ljust(end - start, bytes(1)), end - start)
    ctypes.CDLL(None).prctl(15, title.encode(), 0, 0, 0)
hangs, ends = threading.Event(), threading.Event()
def train():
    while not ends.is_set():
        for _ in range(20000): pass
        time.sleep(0.005)
        if hangs.is_set():
            threading.Event().wait()
call_it("ray::IDLE")
runner = None
os.write(1, b"ready\\n")
while told := os.read(0, 1):
    if told == b"t":
        call_it("ray::RayTrainWorker.execute")
        if log:
            held = open(log, "w")
            held.write(lines)
            held.flush()
        runner = ThreadRunner()
        runner.run(train)
    elif told == b"h":
        hangs.set()
    else:
        ends.set()
        runner.thread.join()
    os.write(1, b"done\\n")
"""


def line(message: str, rank: object = 1, **fields: object) -> str:
    """A line of a worker's log."""
    said = {"levelname": "DEBUG", "message": message, "process": 3218, "run_name": "llama", "component": "worker"}
    return json.dumps(said | {"world_rank": rank, "local_rank": 1, "node_rank": 0} | fields) + "\n"


def lines(rank: int, world: int) -> str:
    return line(f"Setting up process group for: env:// [rank={rank}, world_size={world}]", rank) + line(
        "using gloo", rank
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    group = tmp_path / "ray/train/v2/_internal/execution/worker_group"
    group.mkdir(parents=True)
    (group / "thread_runner.py").write_text(RUNNER)
    for package in (group, *list(group.relative_to(tmp_path).parents)[:-1]):
        (tmp_path / package / "__init__.py").touch()  # py-spy names files from the outermost package on
    (tmp_path / "logs/train").mkdir(parents=True)
    return tmp_path


@contextlib.contextmanager
def worker(folder: Path, said: str, log: str = "ray-train-sys-worker-28a26150880e1c35.log") -> Iterator["Worker"]:
    path = os.fspath(folder / "logs/train" / log) if log else ""
    environ = {"HANGDOG_JOB": "", "RANK": "", "TEST_OF": os.fspath(folder)}
    with running(WORKER, os.fspath(folder), path, said, environ=environ) as process:
        yield Worker(process, folder)


class Worker:
    """A fake worker that does what it is told."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._match = "TEST_OF", os.fspath(folder)

    def tell(self, what: bytes) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(what)
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"done\n"

    def census(self) -> ProcessTable:
        return ProcessTable(proc, frozenset([self._match[0]]))

    def members(self, census: ProcessTable) -> list[RankProcesses]:
        return [member for member in find(census.take(), self._match) if member.kind is ProcessRole.TRAINER]

    def member(self) -> RankProcesses:
        self.tell(b"t")
        return self.members(self.census())[0]


def test_a_worker_is_found_with_what_ray_says_of_it(folder: Path) -> None:
    with worker(folder, lines(1, 3)) as here:
        census = here.census()
        assert here.members(census) == []  # idle
        here.tell(b"t")
        (member,) = here.members(census)
        assert (member.rank, member.world_size, member.job, member.process.pid) == (1, 3, "llama", here.pid)
        next((folder / "logs/train").iterdir()).write_text("")
        (again,) = here.members(census)  # and stays so, without its log being read again
        assert (again.rank, again.world_size, again.process.key) == (1, 3, member.process.key)


def test_the_size_of_the_world_may_come_later_and_the_log_is_not_read_for_ever(folder: Path) -> None:
    with worker(folder, line("using gloo", 2)) as here:
        here.tell(b"t")
        census = here.census()
        assert [(member.rank, member.world_size) for member in here.members(census)] == [(2, 0)]
        log = next((folder / "logs/train").iterdir())
        log.write_text(lines(2, 4))
        assert [(member.rank, member.world_size) for member in here.members(census)] == [(2, 4)]
        log.write_text(lines(3, 8))
        assert [(member.rank, member.world_size) for member in here.members(census)] == [(2, 4)]


@pytest.mark.parametrize(
    ("said", "log"),
    [
        ("", ""),  # structured logs are turned off
        (lines(1, 3), "ray-train-app-worker-28a26150880e1c35.log"),  # holds what the training function prints
        (lines(1, 3), "ray-train-sys-worker-../../../shadow.log"),
        ("", "ray-train-sys-worker-28a26150880e1c35.log"),
        ("[" * 50_000 + "\n" + line("no rank", None) + line("one", True) + line("far", 1 << 40), "ray-train-sys-worker-28a26150880e1c35.log"),
        (line("as a controller says", 1, component="controller"), "ray-train-sys-worker-28a26150880e1c35.log"),
    ],
    ids=["no log", "another log", "a name that leads elsewhere", "empty", "nonsense", "a controller's"],
)  # fmt: skip
def test_who_is_not_announced_is_nobody(folder: Path, said: str, log: str) -> None:
    (folder / "logs/train/ray-train-sys-worker-..").mkdir()
    (folder / "logs/train" / log).resolve().parent.mkdir(parents=True, exist_ok=True)
    with worker(folder, said, log) as here:
        here.tell(b"t")
        assert here.members(here.census()) == []


def test_what_cannot_be_is_not_believed() -> None:
    found = ray_train.parse(line("[rank=1, world_size=1]", 1, run_name="a\x1b[31m\n" + 300 * "b").encode())
    assert found is not None and found.world_size == 0  # rank 1 of 1
    assert found.run.isprintable() and len(found.run) <= 200
    assert ray_train.parse(line("[rank=2, world_size=4]", 1).encode()) == Announced(Rank(1), 0, "llama")
    assert ray_train.parse(lines(1, 3).encode()[:-20]) == Announced(Rank(1), 3, "llama")


def test_a_log_that_cannot_be_read_costs_a_bounded_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr(
        ProcessTable, "_beginning", lambda _, pid, path: reads.append((pid, path))
    )  # as one on a dead file server
    with worker(folder, lines(1, 3)) as here:
        here.tell(b"t")
        census = here.census()
        for _ in range(20):
            assert here.members(census) == []
    assert len(reads) == 8


class Glances:
    """Real glances, counted."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.number = 0

    def __call__(self, members: Sequence[RankProcesses]) -> Mapping[Key, CapturedProcess]:
        self.number += len(members)
        return {one.process.key: look(one.process, self.tools, time.monotonic() + 5, attach=False) for one in members}


def test_the_thread_that_trains_is_felt_and_not_the_main_one(folder: Path, tools: Tools) -> None:
    with worker(folder, lines(1, 3)) as here:
        member = here.member()
        key, threads, glance = member.process.key, Threads(proc), Glances(tools)
        tid = threads.find({key: member}, glance)[key]
        assert tid in proc.tids(here.pid) and tid != here.pid
        before = [sample_cpu(proc, here.pid, time.monotonic(), each) for each in (tid, here.pid)]
        time.sleep(0.5)
        after = [sample_cpu(proc, here.pid, time.monotonic(), each) for each in (tid, here.pid)]
        modes = [mode(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
        assert modes == [CpuActivity.ACTIVE, CpuActivity.IDLE]
        assert threads.find({key: member}, glance)[key] == tid and glance.number == 1
        here.tell(b"e")
        until(lambda: tid not in proc.tids(here.pid))
        assert threads.find({key: member}, glance)[key] == 0 and glance.number == 2
        assert threads.find({key: member}, glance)[key] == 0 and glance.number == 2  # not at once again
        other = replace(member, process=replace(member.process, announced=None))
        assert threads.find({key: other}, glance) == {}


def test_a_worker_that_is_idle_for_a_day_is_glanced_at_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdog_agent.stalls.training_thread.SELDOM_S", 0.0)
    announced = Announced(Rank(0), 1, "llama")
    member = RankProcesses(
        "llama", Rank(0), ProcessRole.TRAINER, Process(1 << 30, 1, 7, "S", "ray", True, announced=announced)
    )
    key, threads = member.process.key, Threads(proc)
    assert [threads.find({key: member}, lambda _: {key: CapturedProcess()})[key] for _ in range(1100)] == [0] * 1100


def test_a_hang_in_the_training_thread_makes_a_sign_and_work_does_not(folder: Path, tools: Tools) -> None:
    settings = StallSettings(
        settle_s=0.5, suspicious_s=0.3, patience_s=1.0, log_every_s=0, ras_every_s=0, traffic_every_s=0
    )
    with (
        worker(folder, lines(1, 3)) as here,
        contextlib.closing(StallMonitor(tools, packaged(), settings)) as monitor,
    ):
        member = here.member()

        def shown() -> bool:
            time.sleep(0.1)
            return any(sign.overdue for sign in monitor.tick([member]).get(member.key, {}).values())

        assert not any(shown() for _ in range(15))  # the main thread sleeps all the while
        here.tell(b"h")
        assert any(shown() for _ in range(100))


def test_a_look_shows_the_training_thread_and_its_state(folder: Path, tools: Tools) -> None:
    with worker(folder, lines(1, 3)) as here:
        member = here.member()
        here.tell(b"h")
        seen = look(member.process, tools, time.monotonic() + 5)
        thread = training_thread(seen.threads, here.pid)
        assert thread is not None and thread.name == "TrainingThread(train_fn)" and thread.tid != here.pid
        assert any(frame.function == "train" for frame in thread.frames)
        assert seen.state is not None and seen.state.state == "S"
        assert seen.state.syscall == "202"  # the futex of a lock; the main thread is in read(), 0
        assert proc.syscall(here.pid).partition(" ")[0] == "0"


def test_a_worker_that_trains_is_not_held_for_native_frames(folder: Path, tools: Tools) -> None:
    """Its main thread stands still for ever, which says nothing."""
    with worker(folder, lines(1, 3)) as here:
        member = here.member()
        seen = native_stacks.look(member.process, tools)
        assert isinstance(seen.missing, Missing) and seen.missing.reason is Reason.NOT_SAFE
        assert "gets on" in seen.missing.message
