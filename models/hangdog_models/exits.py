"""How trainers ended: whether that is a crash of their job, its normal end, or an order from outside."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank

#: Signals by which people, launchers and schedulers end a process that did nothing wrong.
_ORDERS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
#: Exit statuses after such a signal: of the signal itself, or as a shell and many handlers write it.
STOPPED = frozenset(status for number in _ORDERS for status in (-number, 128 + number))
#: Codes of log findings that say that a process was ordered to end: the launcher, and a rank.
STOP_ORDER = "told to stop"
_INTERRUPTED = frozenset({STOP_ORDER, "interrupted"})
#: Findings on the machine itself: no order explains them.
_HARDWARE = frozenset({Impact.CONVICTS, Impact.RESET, Impact.SUSPECTS})
#: Findings in a rank's log if it failed by itself.
OWN = _HARDWARE | {Impact.PROGRAM, Impact.NUMBERS, Impact.SERVICE}
#: Codes of an end that say nothing of its cause, of the launcher and of the process itself; they do not mark a victim.
_BARE_ENDS = frozenset({"first observed failure", "killed", "aborted"})
#: Signals that no order sends: the process itself caused them.
_BY_ITSELF = frozenset(
    -number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
)
#: Code, impact and sentence of the exit codes of signals.
SIGNALS = {
    "-4": ("illegal instruction", Impact.PROGRAM, "SIGILL, code that this processor does not have"),
    "-7": ("bus error", Impact.PROGRAM, "SIGBUS, mostly shared memory that is used up, a setting of the container"),
    "-8": ("arithmetic error", Impact.PROGRAM, "SIGFPE, code of a native library"),
    "-9": ("killed", Impact.VICTIM, "SIGKILL, by the kernel that lacked memory, by the scheduler or by hand; it does not say which"),
    "-11": ("segmentation fault", Impact.PROGRAM, "SIGSEGV, code of a native library"),
    "-15": ("ended by the launcher", Impact.TELLS_NOTHING, "SIGTERM, the launcher or the scheduler ended it"),
}  # fmt: skip
#: If all were killed within so many seconds, the launcher as well, the job was removed: its container, or by a user.
AT_ONCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one rank's trainer, at `at_s` seconds of one clock for all of them.

    - `status`: its exit code, negative for the signal that ended it; None if unknown.
    - `oom`: its control group killed a process for memory meanwhile.
    - `ran_s`: for how long it had run; 0: unknown.
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
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def failed(exits: Sequence[Exit], findings: Sequence[Finding]) -> tuple[Exit, ...]:
    """Those that failed and were not ordered to end, the first one first.

    If the status is unknown, only the rank's own log counts: its end alone is no fault.
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
    """What the ends of one machine's trainers are together, with the findings of logs.

    A process ordered to end may fail on the way, and log that. Then only what no order explains counts.

    `launcher_killed_s`: when SIGKILL ended their launcher, on the clock of `exits`; None: it did not.
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
    """The exit that began the crash: the first failure whose log does not say that it lost another rank.

    None if all say so: then it began elsewhere.
    """
    victims = {one.rank for one in findings if one.impact is Impact.VICTIM and one.code not in _BARE_ENDS}
    owners = {one.rank for one in findings if one.impact in OWN}
    fell = [one for one in failed(exits, findings) if one.rank not in victims or one.rank in owners]
    return fell[0] if fell else None
