"""The pulse of the thread that trains: how much it ran and how often, as the kernel counts it.

It costs two small reads of /proc and never touches the process, so every trainer's is felt every second.
"""

from dataclasses import dataclass
from enum import StrEnum

from hangdog_agent.procfs import Proc


class CpuActivity(StrEnum):
    """How the main thread spent a second: training alternates between work and waits, what is stuck does one only."""

    LIVELY = "lively"
    SILENT = "silent"
    PINNED = "pinned"


#: A waiter does not run; the rest is what timers and stray wake-ups cost. Share of one core.
SILENT_SHARE = 0.02
#: Times a second a silent thread may be woken: waits for a data loader wake up every five seconds to look around.
SILENT_WAKES = 3.0
#: Who runs for less than this gets nothing done, however often it wakes up: it looks again and again whether something has
#: come, as a wait for another process's file lock does ten times a second.
DOZING_SHARE = 0.005
#: From this share of the time on it wanted to run all the time: it computes, or spins in a wait.
PINNED_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class CpuSample:
    """Counters of one thread at the moment `at` (of `time.monotonic`).

    `ran_s` it was on a core, `queued_s` it was ready and had none, `wakes` times it was put on one.
    """

    at: float
    ran_s: float
    queued_s: float
    wakes: int


def feel(proc: Proc, pid: int, now: float, tid: int | None = None) -> CpuSample | None:
    """The beat of a process's main thread, or of the one named; None when it is gone, or the kernel does not count.

    The kernel counts with CONFIG_SCHED_INFO.
    """
    counted = proc.schedstat(pid, tid or pid)
    if counted is None or not any(counted):
        return None
    ran_ns, queued_ns, wakes = counted
    return CpuSample(now, ran_ns / 1e9, queued_ns / 1e9, wakes)


def mode(before: CpuSample, after: CpuSample) -> CpuActivity:
    """How the time between two beats was spent."""
    span = max(after.at - before.at, 1e-3)
    ran, queued = after.ran_s - before.ran_s, after.queued_s - before.queued_s
    if (ran + queued) / span >= PINNED_SHARE:
        return CpuActivity.PINNED
    if ran / span <= SILENT_SHARE and (after.wakes - before.wakes) / span <= SILENT_WAKES:
        return CpuActivity.SILENT
    return CpuActivity.LIVELY


def dozes(before: CpuSample, after: CpuSample) -> bool:
    """Whether it ran for so short between two beats that it can only have looked whether something has come."""
    return after.ran_s - before.ran_s <= DOZING_SHARE * max(after.at - before.at, 1e-3)
