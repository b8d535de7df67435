"""Reads the text of gdb's `thread apply all bt`: native stacks of one process."""

import re
from collections.abc import Iterator

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import (
    LONGEST_LINE,
    DumpedProcess,
    check_frames,
    check_threads,
    lines_of,
    split_bracket,
)
from hangdog_models.stack import Frame, Thread

_THREAD = re.compile(r"Thread (\d{1,9}) \((.*)\):?")
_TASK = re.compile(r"(?:LWP|process) (\d{1,18})")
_COMM = re.compile(r'"(.*)"')
_FRAME = re.compile(r"#\d{1,6}\s+(?:0x[0-9a-fA-F]+ in )?(\S.*)")
_FROM = re.compile(r"(.*) from (\S+)")
_AT = re.compile(r"(.*) at (\S+?)(?::(\d{1,9}))?")


def recognises(head: str) -> bool:
    """Whether a text has a gdb thread header and a frame number in its first lines."""
    return any(_is_header(line) for line in lines_of(head)) and any(line.startswith("#0 ") for line in lines_of(head))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The one process of the text; its pid is the task id of gdb's thread 1, which is a live process's first thread."""
    threads: list[Thread] = []
    pid: int | None = None
    for header, lines in _sections(text):
        check_threads(len(threads) + 1, limits)
        check_frames(len(lines), limits)
        task, comm = _TASK.search(header[2]), _COMM.search(header[2])
        tid = int(task[1]) if task else 0
        if header[1] == "1" and task:
            pid = tid
        frames = tuple(_frame(line, limits) for line in reversed(lines))
        threads.append(Thread(text_of(comm[1], limits) if comm else None, tid, frames))
    if not threads:
        raise UnreadableEvidence("not the text of gdb's `thread apply all bt`: no thread in it")
    return (DumpedProcess(pid, tuple(threads)),)


def _is_header(line: str) -> bool:
    header = _THREAD.fullmatch(line) if line.startswith("Thread ") else None
    return header is not None and _TASK.search(header[2]) is not None


def _sections(text: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Each thread's header with its frames, innermost first; gdb breaks long frames into indented lines."""
    current: tuple[re.Match[str], list[str]] | None = None
    for line in lines_of(text):
        header = _THREAD.fullmatch(line) if _is_header(line) else None
        if header is not None:
            if current is not None:
                yield current
            current = (header, [])
        elif current is not None:
            if frame := _FRAME.fullmatch(line):
                current[1].append(frame[1])
            elif line[:1].isspace() and current[1] and len(current[1][-1]) < LONGEST_LINE:
                current[1][-1] += " " + line.strip()
    if current is not None:
        yield current


def _frame(line: str, limits: Limits) -> Frame:
    call, file, number, module = line, "", 0, ""
    if came_from := _FROM.fullmatch(line):
        call, module = came_from.groups()
    elif at := _AT.fullmatch(line):
        call, file, number = at[1], at[2], int(at[3] or 0)
    place = text_of(file, limits)
    called, _ = split_bracket(call)  # the arguments' values are not kept
    if called == call:  # a text among the values holds a lone bracket
        called = call.partition(" (")[0]
    # A native frame without a library still has to show that it is native.
    return Frame(text_of(called, limits), place, number, text_of(module, limits) or place or "??")
