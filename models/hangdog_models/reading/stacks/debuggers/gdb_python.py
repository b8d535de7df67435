"""Reads the text of CPython's gdb commands `py-bt` and `thread apply all py-bt`: Python stacks, innermost frame first."""

import re
from collections.abc import Iterator

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.debuggers.gdb_sections import GdbThread, processes_of
from hangdog_models.reading.stacks.dumped_process import MAIN, DumpedProcess, installed_path, lines_of
from hangdog_models.stack import Frame, Thread

_BEGINS = "Traceback (most recent call first):"
#: Below each frame its source line is printed, which is never kept. `py-bt-full` writes the values of arguments, too.
#: A line that gdb does not find is written as `?`.
_FRAME = re.compile(r'  File "(.*)", line (\d{1,9}|\?), in (\S.*)')
_FULL = re.compile(
    r"#\d{1,6} (?:Frame 0x[0-9a-fA-F]{1,16}, )?for file (.{1,4000}), line (\d{1,9}|\?), in ([\w.<>]{1,1000}) \(.*"
)
#: What CPython's commands say of a thread's innermost call; as these calls show in a native stack.
_WORDS = {
    "Waiting for the GIL": Frame("take_gil", "", 0, "python"),
    "Garbage-collecting": Frame("gc_collect_main", "", 0, "python"),
}


def recognises(head: str) -> bool:
    """Whether a text has a stack of `py-bt` in its first lines: no other tool writes a comma before `in` below this header."""
    begun = False
    for line in lines_of(head):
        if begun and _FRAME.fullmatch(line):
            return True
        begun = line == _BEGINS or (begun and line[:2] == "  ")
    return any(_FULL.fullmatch(line) for line in lines_of(head))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of the text. Of `py-bt` alone the one thread is that which gdb stops at when it attaches: the main thread."""
    found = []
    for process in processes_of(text, limits):
        threads = [(thread, tuple(_frames(thread, limits))) for thread in process.threads]
        kept = tuple(_thread(thread, frames, process.pid) for thread, frames in threads if frames)
        if kept:
            found.append(DumpedProcess(process.pid, kept))
    if not found:
        raise UnreadableEvidence("not the text of gdb's `py-bt`: no Python stack in it", code="no-stack")
    return tuple(found)


def _frames(thread: GdbThread, limits: Limits) -> Iterator[Frame]:
    """The frames, innermost first."""
    begun = False
    for line in thread.lines:
        if line == _BEGINS:
            begun = True
        elif word := _WORDS.get(line.strip()):
            yield word
        elif frame := (_FRAME.fullmatch(line) if begun else None) or _FULL.fullmatch(line):
            file, number, function = frame.groups()
            yield Frame(
                text_of(function, limits), text_of(installed_path(file), limits), 0 if number == "?" else int(number)
            )


def _thread(thread: GdbThread, frames: tuple[Frame, ...], pid: int | None) -> Thread:
    alone = thread.number == 0
    name = MAIN if alone or thread.tid == pid else thread.name
    return Thread(name, thread.tid or (pid or 0), tuple(reversed(frames)))
