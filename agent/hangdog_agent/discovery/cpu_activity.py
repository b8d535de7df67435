"""CPU activity of the thread that trains: how much it ran and how often, as the kernel counts it.

A sample costs two small reads of /proc and never touches the process, so every trainer is sampled every second.
"""

from dataclasses import dataclass
from enum import StrEnum

from hangdog_agent.procfs import Proc


class CpuActivity(StrEnum):
    """How the main thread spent a second: training alternates between work and waits, a stuck thread does one only."""

    ACTIVE = "active"
    IDLE = "idle"
    BUSY = "busy"


#: A waiter does not run; the rest is what timers and stray wake-ups cost. Share of one core.
IDLE_SHARE = 0.02
#: Times a second an idle thread may be woken: waits for a data loader wake up every five seconds.
IDLE_WAKES = 3.0
#: A thread that runs for less than this gets nothing done, however often it wakes up: it polls, as a wait for another
#: process's file lock does ten times a second.
DOZING_SHARE = 0.005
#: From this share of the time on it wanted to run all the time: it computes, or spins in a wait.
BUSY_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class CpuSample:
    """Counters of one thread at the moment `at` (of `time.monotonic`).

    `ran_s` it was on a core, `queued_s` it was ready and had none, `wakes` times it was put on one.
    """

    at: float
    ran_s: float
    queued_s: float
    wakes: int


def sample_cpu(proc: Proc, pid: int, now: float, tid: int | None = None) -> CpuSample | None:
    """A sample of a process's main thread, or of `tid`; None if it is gone, or the kernel does not count.

    The kernel counts with CONFIG_SCHED_INFO.
    """
    counted = proc.schedstat(pid, tid or pid)
    if counted is None or not any(counted):
        return None
    ran_ns, queued_ns, wakes = counted
    return CpuSample(now, ran_ns / 1e9, queued_ns / 1e9, wakes)


def mode(before: CpuSample, after: CpuSample) -> CpuActivity:
    """How the time between two samples was spent."""
    span = max(after.at - before.at, 1e-3)
    ran, queued = after.ran_s - before.ran_s, after.queued_s - before.queued_s
    if (ran + queued) / span >= BUSY_SHARE:
        return CpuActivity.BUSY
    if ran / span <= IDLE_SHARE and (after.wakes - before.wakes) / span <= IDLE_WAKES:
        return CpuActivity.IDLE
    return CpuActivity.ACTIVE


def dozes(before: CpuSample, after: CpuSample) -> bool:
    """Whether it ran for so short between two samples that it can only have polled."""
    return after.ran_s - before.ran_s <= DOZING_SHARE * max(after.at - before.at, 1e-3)
