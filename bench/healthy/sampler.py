"""Samples a live job as the agent's watch does, in a thread beside it: counters every second, looks at stacks as fast as it may.

The agent itself looks only where it wonders. The recorder always looks, so that a replay has an answer whenever it asks.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from frameworks.looks import Announcing, members
from hangdog_agent.capture import pyspy
from hangdog_agent.capture.process_capture import Tools, look
from hangdog_agent.capture.roles import Roles, kind
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.cpu_activity import sample_cpu
from hangdog_agent.discovery.discover import ProcessRole, RankProcesses
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.procfs import Proc
from hangdog_models.ranks import Rank
from hangdog_models.stack import TRAINER, ProcessTrace
from hangdog_models.training import training_thread
from healthy.recording import Beat, Look, Process, Tables

#: Between two beats, and between two looks at the trainers; the processes below them are looked at more rarely. Seconds.
BEAT_S, LOOK_S, CHILDREN_S = 1.0, 0.7, 5.0
TICKS = os.sysconf("SC_CLK_TCK")


class Sampler:
    """Samples until its block is left."""

    def __init__(self, pids: Mapping[int, int], steps: Callable[[], list[int]]) -> None:
        self._pids, self._steps_now = dict(pids), steps
        self._proc = Proc()
        self._tools = Tools(self._proc, pyspy.load(), CaptureSettings())
        self._table = ProcessTable(Announcing(pids))
        self._roles = Roles()
        self._over = threading.Event()
        self._began = time.monotonic()
        self._pool = ThreadPoolExecutor(2, "sampler")
        self._tids = dict(self._pids)
        self._children_at = float("-inf")
        self._members: list[RankProcesses] = []
        self.tables = Tables()
        self.beats: dict[int, list[Beat]] = {rank: [] for rank in pids}
        self.runnable: list[int] = []
        self.steps: list[tuple[int, int]] = []
        self._looks: dict[tuple[int, str, int], list[Look]] = {}

    def __enter__(self) -> Self:
        self._kept = [self._pool.submit(self._keep, *one) for one in ((self._feel, BEAT_S), (self._look, LOOK_S))]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._pool.shutdown()
        if error is None:
            for kept in self._kept:
                kept.result()

    def now(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def processes(self) -> list[Process]:
        """All that were looked at."""
        return [Process(Rank(rank), role, pid, looks) for (rank, role, pid), looks in sorted(self._looks.items())]

    def _keep(self, once: Callable[[], None], every_s: float) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            once()
            due = max(due + every_s, time.monotonic())

    def _feel(self) -> None:
        self.runnable.append(int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]))
        steps = self._steps_now()
        self.steps.append((min(steps), max(steps)))
        below = self._below()
        for rank, pid in self._pids.items():
            at = self.now()
            beat = sample_cpu(self._proc, pid, at, self._tids[rank])
            stat = self._proc.stat(pid)
            if beat is not None and stat is not None:
                counted = Beat(
                    round(at, 3), round(beat.ran_s, 4), round(beat.queued_s, 4), beat.wakes,
                    self._proc.io_bytes(pid), stat.cpu_ticks / TICKS, round(below[rank], 2),
                )  # fmt: skip
                self.beats[rank].append(counted)

    def _below(self) -> dict[int, float]:
        """The processor time of all living processes below each rank."""
        stats = {stat.pid: stat for pid in self._proc.pids() if (stat := self._proc.stat(pid)) is not None}
        ranks = {pid: rank for rank, pid in self._pids.items()}
        found = dict.fromkeys(self._pids, 0.0)
        for stat in stats.values():
            above, depth = stat.parent, 0
            while above in stats and above not in ranks and depth < 16:
                above, depth = stats[above].parent, depth + 1
            if above in ranks and stat.pid not in ranks:
                found[ranks[above]] += stat.cpu_ticks / TICKS
        return found

    def _look(self) -> None:
        children = time.monotonic() - self._children_at >= CHILDREN_S
        if children or not self._members:
            self._children_at = time.monotonic()
            self._members = members(self._table.take(), self._pids)
        sought = [one for one in self._members if children or one.kind is ProcessRole.TRAINER]
        with ThreadPoolExecutor(2, "sampler-look") as pool:
            traces = list(pool.map(self._trace, sought))
        roles = self._roles.assign(
            (member, kind(member, trace.threads)) for member, (_, trace, _) in zip(sought, traces, strict=True)
        )
        for member, (at, trace, io) in zip(sought, traces, strict=True):
            role = TRAINER if member.kind is ProcessRole.TRAINER else roles[member.process.key]
            looks = self._looks.setdefault((member.rank, role, member.process.pid), [])
            looks.append(self.tables.look(at, trace, io))
            thread = training_thread(trace.threads, trace.pid)
            if role == TRAINER and thread is not None and thread.tid:
                self._tids[member.rank] = thread.tid

    def _trace(self, member: RankProcesses) -> tuple[float, ProcessTrace, int | None]:
        until = time.monotonic() + self._tools.settings.nonblocking_s
        seen = look(member.process, self._tools, until, attach=False)
        pid = member.process.pid
        trace = ProcessTrace(member.rank, TRAINER, pid, seen.threads, seen.state, seen.missing)
        return self.now(), trace, self._proc.io_bytes(pid)
