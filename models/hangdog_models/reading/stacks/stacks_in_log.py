"""Reads the stacks in logs: dumps that Python prints of itself, tracebacks of interrupted programs, and what py-spy printed.

SGLang's watchdog runs py-spy on its workers as it gives up.
"""

import re

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks import faulthandler, interrupted, pyspy_text, thread_dump
from hangdog_models.reading.stacks.dumped_process import DumpedProcess

#: The line above the threads of a process that py-spy dumped.
_DUMPED = re.compile(r"^Process \d{1,18}: ", re.MULTILINE)
#: What begins the lines that name the threads of a program which prints its own stacks.
_OWN = tuple(dict.fromkeys(begin.encode() for begin in thread_dump.BEGINNINGS))


def may_hold(data: bytes) -> bool:
    """Whether it is worth the while to decode a log, for it may have stacks in it."""
    interrupts = b"(most recent call last):" in data and (b"KeyboardInterrupt" in data or b"^C" in data)
    dumps = b"\nThread " in data and b"\nProcess " in data
    own = b", in " in data and any(begin in data for begin in _OWN)
    return interrupts or dumps or own or b"(most recent call first):" in data


def read(text: str, rank: Rank | None = None, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """One stack or dump of each process in a text. What no line tells belongs to `rank`. Never raises.

    A dump shows all threads of its process, so it counts before the traceback of the same process.
    """
    dumped = faulthandler.read(text, rank, limits) if faulthandler.recognises(text) else ()
    found = interrupted.read(text, rank, limits) if interrupted.recognises(text) else ()
    dumped += thread_dump.read(text, rank, limits) if thread_dump.recognises(text) else ()
    dumped += _of_pyspy(text, limits)
    known = {_whose(process) for process in dumped}
    return (*dumped, *(process for process in found if _whose(process) not in known))


def _of_pyspy(text: str, limits: Limits) -> tuple[DumpedProcess, ...]:
    if not _DUMPED.search(text) or not pyspy_text.recognises(text):
        return ()
    try:
        return pyspy_text.read(text, limits)
    except UnreadableEvidence:  # too much of it: the log is read all the same
        return ()


def _whose(process: DumpedProcess) -> tuple[object, ...]:
    return process.ranks, process.local, process.pid
