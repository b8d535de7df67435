"""Plays cases one after the other in as few jobs as it can, and records each."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from frameworks import looks
from frameworks.cases import Case
from frameworks.environment import PYTHON, Framework
from frameworks.expectation import RECORDINGS, written
from frameworks.job import Job
from frameworks.served import in_place_of, server, slow_sink, slow_source, stalled_sink
from hangdog.demo.prctl import adopt_orphans
from hangdog_models.errors import OurFault

#: How late a slow file system gives what is read. Seconds.
LATE_S = 2.0
#: All others have come to wait for a rank before it is killed. Seconds.
WAIT_S = 5.0


def record_all(frameworks: Sequence[Framework], cases: Sequence[Case], folder: Path) -> int:
    """Records all cases of all frameworks; answers how many could not be recorded."""
    adopt_orphans()
    failed = 0
    with server() as address:
        for framework in frameworks:
            if not PYTHON.exists():
                raise OurFault("the trainers' environment is not there: python bench/frameworks install")
            due = [case for case in cases if case.name not in framework.without]
            if not framework.interruptible:
                due.sort(key=lambda case: bool(case.act))  # all others in one job
            number = 0
            while due:
                number += 1
                place = folder / f"{framework.name}-{number}"
                try:
                    with Job(framework, place, address) as job:
                        while due:
                            case = due.pop(0)
                            _record(job, case)
                            if not ends(framework, case) or case.name == "compile":  # what it started may work on
                                break
                            job.wait_on(case.name)
                except OurFault as error:
                    failed += 1
                    print(f"  NOT RECORDED: {error}", flush=True)
                    if not place.joinpath("step-0").exists():
                        return failed + len(due)
    return failed


def ends(framework: Framework, case: Case) -> bool:
    """Whether the job goes on when the case is over."""
    return case.ends and (framework.interruptible or not case.act)


def _record(job: Job, case: Case) -> None:
    name = f"{job.framework.name}-{case.name}"
    ranks = case.ranks(job.framework.name)
    began = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(brought_about(job, case, ranks))
        time.sleep(case.settle_s)
        bundle = job.folder / "bundle"
        shutil.rmtree(bundle, ignore_errors=True)
        found = looks.discovered(job.pids)
        looks.record(job.framework, name, job.pids, job.folder, bundle)
        if not job.alive(besides=ranks if case.deadly else ()) or not list(bundle.glob("round-*/*/rank*")):
            raise OurFault(f"{name}: a rank has ended by itself: {job.last_words()}")
        if case.act and ends(job.framework, case):
            job.release(ranks)
    place = RECORDINGS / name
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("bundle.tar.*"):
        old.unlink()
    looks.packed(bundle, place / "bundle.tar.zst")
    (place / "expected.toml").write_text(written(job.framework, case, found))
    size = (place / "bundle.tar.zst").stat().st_size
    print(f"{name}: {time.monotonic() - began:.0f} s, {size} bytes, ranks found: {found}", flush=True)


@contextmanager
def brought_about(job: Job, case: Case, ranks: Sequence[int]) -> Iterator[None]:
    """What a case is: what the trainers do by themselves, and what is done to them, until its block is left."""
    with ExitStack() as stack:
        if case.act:
            stack.enter_context(slow_source(job.folder / "held-out", LATE_S))
            stack.enter_context(slow_sink(job.folder / "checkpoint"))
            stack.enter_context(stalled_sink(job.folder / "stalled"))
            job.order(case.act, case.name, ranks)
        stack.enter_context(struck(job, case, ranks))
        yield


@contextmanager
def struck(job: Job, case: Case, ranks: Sequence[int]) -> Iterator[None]:
    """What is done to a job from outside, until its block is left."""
    with ExitStack() as stack:
        if case.name == "sigstop":
            for rank in ranks:
                os.kill(job.pids[rank], signal.SIGSTOP)
                stack.callback(os.kill, job.pids[rank], signal.SIGCONT)
        elif case.name in ("slow-reads", "blocked-read"):
            for rank in ranks:
                fifo = stack.enter_context(in_place_of(job.folder / f"shard-{rank}"))
                if case.name == "slow-reads":
                    stack.enter_context(slow_source(fifo, LATE_S))
        elif case.name == "stopped-worker":
            for worker in (worker for rank in ranks for worker in job.workers(rank)):
                os.kill(worker, signal.SIGSTOP)
                stack.callback(os.kill, worker, signal.SIGCONT)
        elif case.deadly:
            time.sleep(WAIT_S)
            for launcher in job.launchers():
                os.kill(launcher, signal.SIGSTOP)
            for rank in ranks:
                os.kill(job.pids[rank], signal.SIGKILL)
        elif case.name == "debugger":
            for rank in ranks:
                stack.enter_context(held(job.pids[rank]))
        yield


@contextmanager
def held(pid: int) -> Iterator[None]:
    """A process is held by a program that traces it, as by a debugger at a breakpoint."""
    command = [sys.executable, "-c", _DEBUGGER, str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as debugger:
        assert debugger.stdin and debugger.stdout
        if debugger.stdout.readline() != b"held\n":
            raise OurFault("a process cannot be traced here")
        try:
            yield
        finally:
            debugger.stdin.close()


#: It lets go of the process when its input ends, and the kernel does when it dies.
_DEBUGGER = """
import ctypes, os, sys
libc, pid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
ATTACH, DETACH = 16, 17
if libc.ptrace(ATTACH, pid, None, None) == 0:
    os.waitpid(pid, 0)
    print("held", flush=True)
    sys.stdin.read()
    libc.ptrace(DETACH, pid, None, None)
"""
