"""Counts the collectives of a job by NCCL RAS: seldom, for each question goes to all processes that RAS reaches."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hangdog_agent.capture import ras
from hangdog_agent.capture.library_counters import asks_ras
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_agent.stalls.progress.background import BackgroundWork
from hangdog_agent.stalls.progress.progress_signal import ProgressSignal, SignalKind
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.collectives import RasReport
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.collectives.library_counters import ras_report

#: If RAS does not listen, or gives no count, it is asked again so seldom: NCCL starts it with the first communicator.
_AGAIN_S = 120.0
#: Reading a report may take this share of a core at most.
_SHARE = 0.001
#: A larger report, one of some thousand ranks, would take more memory to read than the agent may have; such a job is
#: asked again after so long only, in seconds.
_MOST_BYTES, _TOO_LARGE_S = 2 << 20, 3_600.0


@dataclass(frozen=True, slots=True)
class _Count:
    """Operations launched by all members of all communicators, or None; `cost_s` is the CPU time that reading took."""

    launched: int | None
    cost_s: float = 0.0
    large: bool = False


@dataclass(slots=True)
class _Job:
    signal: ProgressSignal
    due: float
    last: int | None = None
    work: BackgroundWork[_Count] | None = None


class Collectives:
    """The counts of all jobs. Only one thread may use it; it never waits."""

    def __init__(self, tools: Tools, settings: StallSettings) -> None:
        self._tools = tools
        self._settings = settings
        self._jobs: dict[str, _Job] = {}

    def read(self, jobs: Mapping[str, Sequence[RankProcesses]], now: float) -> dict[str, ProgressSignal]:
        """Asks if it is due; the progress signal of each job whose collectives are counted."""
        every_s = self._settings.ras_every_s
        if not every_s:
            return {}
        self._jobs = {
            job: self._jobs.get(job) or self._new(now)
            for job, members in jobs.items()
            if self._tools.settings.ras and asks_ras(members)
        }
        for job, one in self._jobs.items():
            if one.work is not None and one.work.done():
                self._take(one, one.work, now)
            elif one.work is None and now >= one.due:
                one.work = BackgroundWork("ras", partial(count, jobs[job][0], self._tools))
        return {job: one.signal for job, one in self._jobs.items() if one.last is not None}

    def _new(self, now: float) -> _Job:
        return _Job(ProgressSignal(SignalKind.COLLECTIVES, self._settings.ras_every_s, authoritative=True), now)

    def _take(self, one: _Job, work: BackgroundWork[_Count], now: float) -> None:
        one.work = None
        counted = work.result or _Count(None)
        if counted.launched is None:
            one.due = now + max(_TOO_LARGE_S if counted.large else _AGAIN_S, self._settings.ras_every_s)
            return
        # A count that falls is of communicators that ended, or of processes that did not answer: it shows nothing.
        one.signal.look(one.last is not None and counted.launched > one.last, work.ended)
        one.last = counted.launched
        one.due = work.began + max(self._settings.ras_every_s, counted.cost_s / _SHARE)


def count(member: RankProcesses, tools: Tools) -> _Count:
    """Asks RAS where this trainer finds it; answers within ten seconds."""
    stated = ras.report(member, tools)
    if len(stated.data) > _MOST_BYTES:
        return _Count(None, large=True)
    began = time.thread_time()
    try:
        launched = _launched(ras_report(stated.data)) if stated.missing is None else 0
    except UnreadableEvidence:
        launched = 0
    return _Count(launched or None, time.thread_time() - began)


def _launched(report: RasReport) -> int:
    """Of communicators whose members are all named: the text report names the odd ones only. NCCL may count nothing, 0."""
    whole = (each for each in report.communicators if len(each.members) == each.size)
    return sum(sum(member.launched.values()) for each in whole for member in each.members)
