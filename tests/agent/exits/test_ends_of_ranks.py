"""Real processes that stand for the ranks of a job: what is told of their ends, and that nothing is where none of it is a crash."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch, jobs
from hangdog_agent.exits.crashes import Crashes
from hangdog_agent.job_report import JobReport
from hangdog_agent.procfs import Proc
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.findings import Impact
from hangdog_models.rules.ruleset import packaged
from hangdog_proto.codec import exits, findings
from support.fakes import targets

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

OURS = "HANGDOG_TEST_CRASH"
#: A rank that waits for a line, and does what it says.
RANK = "import os, sys; print('here', flush=True); exec(sys.stdin.readline())"
SETTLE_S = 4.0


@dataclass
class Ranks:
    """A job of some ranks, and what watches it, tick by tick."""

    processes: list[subprocess.Popen[bytes]]
    watch: Watch
    crashes: Crashes
    stalls: StallMonitor

    def tell(self, rank: int, what: str) -> None:
        stdin = self.processes[rank].stdin
        assert stdin is not None
        stdin.write(f"{what}\n".encode())
        stdin.flush()

    def tick(self) -> list[JobReport]:
        members = self.watch.see()
        self.stalls.tick(members, self.crashes.note(members, jobs(members)))
        return self.crashes.complete(self.stalls.last_words)

    def ticks(self, seconds: float, reaped: bool = True) -> list[JobReport]:
        """All that is told within so long; of no more than one crash is waited for the rest."""
        found: list[JobReport] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until and not found:
            for process in self.processes if reaped else ():
                process.poll()  # as a launcher does
            found += self.tick()
            time.sleep(0.2)
        return found


def begun(log: Path) -> bool:
    return log.read_bytes().startswith(b"here")


@contextmanager
def job(tools: Tools, folder: Path, count: int = 3) -> Iterator[Ranks]:
    mark = uuid.uuid4().hex
    with ExitStack() as stack:
        processes = []
        for rank in range(count):
            log = stack.enter_context((folder / f"rank{rank}.log").open("ab"))
            environ = {**os.environ, OURS: mark, "RANK": str(rank), "WORLD_SIZE": str(count), "HANGDOG_JOB": "crashing",
                       "TORCHELASTIC_ERROR_FILE": str(folder / f"error{rank}.json")}  # fmt: skip
            one = subprocess.Popen(
                (sys.executable, "-c", RANK), stdin=subprocess.PIPE, stdout=log, stderr=log, env=environ
            )
            stack.callback(one.wait)
            stack.callback(one.kill)
            assert one.stdin is not None
            stack.callback(one.stdin.close)
            processes.append(one)
        for rank in range(count):
            targets.until(partial(begun, folder / f"rank{rank}.log"))
        settings = StallSettings(log_every_s=0.1, beat_s=0.1)
        tools = replace(tools, stop=threading.Event())
        watch = Watch(ProcessTable(Proc(), frozenset([OURS])), (OURS, mark), (), 60.0)
        crashes = Crashes(Proc(), SETTLE_S, tuple)
        stack.callback(crashes.close)
        stalls = StallMonitor(tools, packaged(), settings)
        stack.callback(stalls.close)
        ranks = Ranks(processes, watch, crashes, stalls)
        targets.until(lambda: ranks.tick() == [] and len(stalls._sources._logs._names) == 2 * count)
        yield ranks


def statuses(crash: JobReport) -> dict[int, int]:
    return {one.rank: one.status for one in crash.message.captured.capture.exits}


def test_an_error_and_those_that_followed_are_told_once_with_the_words_of_each(tools: Tools, tmp_path: Path) -> None:
    with job(tools, tmp_path) as ranks:
        ranks.tell(1, "raise ValueError('labels run from 1, token=abcdef0123456789')")
        ranks.processes[1].wait()
        ranks.tell(0, "raise RuntimeError('[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:5')")
        ranks.processes[2].send_signal(signal.SIGTERM)
        (crash,) = ranks.ticks(20.0)
        message = crash.message
        assert message.crash and crash.job.name == "crashing" and crash.job.ranks == (0, 1, 2)
        assert statuses(crash) == {0: 1, 1: 1, 2: -15}
        ends = {one.rank: one.after_s for one in message.captured.capture.exits}
        assert ends[1] == 0.0 < min(ends[0], ends[2]) < 3.0
        known = exits.own(message.captured.capture.exits, crash.job.ranks, 1e9)
        assert len(known) == 3 and 0.05 < known[0].ran_s < 60.0
        found = {one.rank or 0: one for one in findings.unpack(message.captured.capture.findings, "m", {0, 1, 2})}
        assert (found[1].code, found[1].impact) == ("ValueError", Impact.PROGRAM)
        assert (found[0].code, found[0].impact) == ("connection lost", Impact.VICTIM)
        assert "abcdef" not in str(message) and "labels run" in found[1].what
        assert re.match(r"rank 1: .*\b1; 2 other ranks ", message.why)
        assert not ranks.ticks(SETTLE_S), "it is told once"


def test_the_error_file_speaks_where_the_log_does_not(tools: Tools, tmp_path: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\nKeyError: 3\n'
    extra = {"py_callstack": trace, "timestamp": "5"}
    document = json.dumps({"message": {"message": "KeyError: 3", "extraInfo": extra}})
    with job(tools, tmp_path) as ranks:
        for rank in range(3):
            ranks.tell(
                rank,
                f"open({str(tmp_path / 'error1.json')!r}, 'w').write({document!r}); os._exit(1)"
                if rank == 1
                else "os._exit(1)",
            )
            time.sleep(0.1)
        (crash,) = ranks.ticks(20.0)
        found = findings.unpack(crash.message.captured.capture.findings, "m", {0, 1, 2})
        assert [(one.rank, one.code) for one in found] == [(1, "KeyError")]


@pytest.mark.parametrize(
    "ends", [("pass",) * 3, ("os.kill(os.getpid(), 15)",) * 3, ("os._exit(0)", "os._exit(143)", "os._exit(130)")]
)
def test_a_job_that_ends_well_or_is_stopped_is_not_told(tools: Tools, tmp_path: Path, ends: Sequence[str]) -> None:
    with job(tools, tmp_path) as ranks:
        for rank, end in enumerate(ends):
            ranks.tell(rank, end)
        assert not ranks.ticks(SETTLE_S + 1.0)


def test_a_rank_that_falls_alone_is_told_while_the_others_stand(tools: Tools, tmp_path: Path) -> None:
    with job(tools, tmp_path) as ranks:
        ranks.processes[2].kill()
        (crash,) = ranks.ticks(20.0)
        assert statuses(crash) == {2: -9}
        missing = {trace.rank: trace.missing.message for trace in crash.message.captured.capture.traces}
        assert "SIGKILL" in missing[2] and "not ended" in missing[0]
        for rank in (0, 1):
            ranks.tell(rank, "raise ValueError")
        assert not ranks.ticks(SETTLE_S + 1.0), "they are the crowd of that crash"


def test_those_whom_nobody_reaps_are_told_once_too(tools: Tools, tmp_path: Path) -> None:
    with job(tools, tmp_path) as ranks:
        ranks.processes[2].kill()
        (crash,) = ranks.ticks(SETTLE_S + 3.0, reaped=False)
        assert statuses(crash) == {2: -9}
        assert not ranks.ticks(SETTLE_S + 1.0, reaped=False), "it is told once"
