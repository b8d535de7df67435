"""Reads the stacks that processes print into their logs: dumps of `faulthandler`, and the tracebacks of interrupted programs."""

from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks import faulthandler, interrupted
from hangdog_models.reading.stacks.dumped_process import DumpedProcess


def may_hold(data: bytes) -> bool:
    """Whether it is worth the while to decode a log, for it may have stacks in it."""
    return b"(most recent call first):" in data or (
        b"(most recent call last):" in data and (b"KeyboardInterrupt" in data or b"^C" in data)
    )


def read(text: str, rank: Rank | None = None, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """One stack or dump of each process in a text. What no line tells belongs to `rank`. Never raises.

    A dump shows all threads of its process, so it counts before the traceback of the same process.
    """
    dumped = faulthandler.read(text, rank, limits) if faulthandler.recognises(text) else ()
    found = interrupted.read(text, rank, limits) if interrupted.recognises(text) else ()
    known = {_whose(process) for process in dumped}
    return (*dumped, *(process for process in found if _whose(process) not in known))


def _whose(process: DumpedProcess) -> tuple[object, ...]:
    return process.ranks, process.local, process.pid
