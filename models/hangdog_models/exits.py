"""How trainers ended, and whether that is a crash of their job, its usual end, or an order from outside."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank

#: Signals by which people, launchers and schedulers end a process that did nothing wrong.
_ORDERS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
#: Statuses of a process that was ended so: by the signal itself, or as a shell and many a handler write it.
STOPPED = frozenset(status for number in _ORDERS for status in (-number, 128 + number))
#: Codes of what a log says where somebody was told to end: the launcher, and a rank.
STOP_ORDER = "told to stop"
_INTERRUPTED = frozenset({STOP_ORDER, "interrupted"})
#: What a log says of the machine itself: nobody's order explains that.
_HARDWARE = frozenset({Impact.CONVICTS, Impact.RESET, Impact.SUSPECTS})
#: What a rank's log says where it failed by itself.
OWN = _HARDWARE | {Impact.PROGRAM, Impact.NUMBERS, Impact.SERVICE}
#: The launcher's words of whoever it saw end first, which are no words of a victim.
_OF_THE_LAUNCHER = frozenset({"first observed failure", "killed"})
#: Signals that no order to end sends: the process did something.
_BY_ITSELF = frozenset(
    -number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
)
#: Code, bearing and sentence of the exit codes that tell more: the signals that end a process.
SIGNALS = {
    "-4": ("illegal instruction", Impact.PROGRAM, "SIGILL, code that this processor does not have"),
    "-7": ("bus error", Impact.PROGRAM, "SIGBUS, mostly shared memory that is used up, a setting of the container"),
    "-8": ("arithmetic error", Impact.PROGRAM, "SIGFPE, code of a native library"),
    "-9": ("killed", Impact.VICTIM, "SIGKILL, by the kernel that lacked memory, by the scheduler or by hand; it does not say which"),
    "-11": ("segmentation fault", Impact.PROGRAM, "SIGSEGV, code of a native library"),
    "-15": ("ended by the launcher", Impact.TELLS_NOTHING, "SIGTERM, the launcher or the scheduler ended it"),
}  # fmt: skip
#: Where all were killed within so long, their launcher as well, somebody removed the job: a container, or a user. Seconds.
AT_ONCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one rank's trainer, at `at_s` seconds of one clock for all of them.

    `status` is its exit code, negative for the signal that ended it; None where nobody could tell. `oom`: its control group
    killed a process for memory meanwhile. `ran_s` is for how long it had run; 0: unknown.
    """

    rank: Rank
    status: int | None
    at_s: float
    oom: bool = False
    ran_s: float = 0.0

    @property
    def words(self) -> str:
        """How it ended, for people."""
        if self.status is None:
            return "it ended, and nobody could tell how"
        if self.status >= 0:
            return f"it ended with exit code {self.status}"
        return f"it was ended by {signal_name(-self.status)}"


class Ending(StrEnum):
    """What the ends of a job's trainers are together."""

    FINISHED = "finished"
    STOPPED = "stopped from outside"
    CRASHED = "crashed"


def signal_name(number: int) -> str:
    """A signal as people call it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def failed(exits: Sequence[Exit], findings: Sequence[Finding]) -> tuple[Exit, ...]:
    """Those that did not end well and were not told to end, the first one first.

    Of one whose status nobody could tell only its own words count: that it ended is no fault.
    """
    interrupted = {one.rank for one in findings if one.code in _INTERRUPTED}
    spoke = {one.rank for one in findings if one.impact in OWN}
    fell = [
        one
        for one in exits
        if one.rank not in interrupted
        and one.status not in STOPPED
        and (one.status or (one.status is None and one.rank in spoke))
    ]
    return tuple(sorted(fell, key=lambda one: (one.at_s, one.rank)))


def ending(exits: Sequence[Exit], findings: Sequence[Finding], launcher_killed_s: float | None = None) -> Ending:
    """What these ends of one machine's trainers are, by what logs say of them.

    Whoever is told to end may fail on the way, and say so: only what no order explains counts then.
    `launcher_killed_s`: when SIGKILL ended what had started them, on the clock of `exits`; None: it did not.
    """
    fell = failed(exits, findings)
    if not fell:
        return Ending.STOPPED if any(one.status in STOPPED for one in exits) else Ending.FINISHED
    hardware = any(one.impact in _HARDWARE for one in findings)
    if any(one.code in _INTERRUPTED for one in findings):
        return Ending.CRASHED if hardware or any(one.status in _BY_ITSELF for one in fell) else Ending.STOPPED
    killed = all(one.status == -signal.SIGKILL and not one.oom for one in exits)
    if killed and launcher_killed_s is not None and launcher_killed_s <= fell[0].at_s + AT_ONCE_S:
        return Ending.STOPPED
    return Ending.CRASHED


def first_failed(exits: Sequence[Exit], findings: Sequence[Finding]) -> Exit | None:
    """The one with which it began: the first to fail that does not say that somebody else was lost to it.

    None where all that failed say so: then it began elsewhere.
    """
    victims = {one.rank for one in findings if one.impact is Impact.VICTIM and one.code not in _OF_THE_LAUNCHER}
    owners = {one.rank for one in findings if one.impact in OWN}
    fell = [one for one in failed(exits, findings) if one.rank not in victims or one.rank in owners]
    return fell[0] if fell else None
