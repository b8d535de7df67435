"""Reads the samples of austin: process, thread and frames in one line, outermost first, and how long the stack was seen.

The form is that of austin 3.0 to 4.1, there after `mojo2austin` (docs/, src/py_thread.c): `P7;T7;/a/t.py:main:3;… 1000`. Since 3.6
the interpreter stands before the thread, `T0:7`; with `-f` two more numbers stand behind the time.
"""

import re
from collections.abc import Iterator

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import (
    MAIN,
    UNNAMED,
    DumpedProcess,
    check_frames,
    check_threads,
    installed_path,
    lines_of,
)
from hangdog_models.stack import Frame, Thread

_LINE = re.compile(r"P(\d{1,18});T(?:\d{1,9}:)?(\d{1,18}|0x[0-9a-fA-F]{1,16})(;.*)? (-?\d{1,18})(?:,-?\d{1,18}){0,2}")
#: A file, which may hold colons on Windows and in the names of frozen modules, a function and a line.
_FRAME = re.compile(r"(.{1,4096}):([^:;]{1,4096}):(\d{1,9})")
#: What stands before the samples: `# mode: wall`.
_COMMENT = "# "
#: Lines of that kind before the first sample.
_HEAD_LINES = 40
#: Distinct stacks of one text: a program that runs has thousands, and one that hangs has few.
_MOST = 1 << 16

_Stack = tuple[int, int, str]


def recognises(head: str) -> bool:
    """Whether the first line that is no comment is a sample with a frame."""
    lines = (line for line, _ in zip(lines_of(head), range(_HEAD_LINES), strict=False))
    found = _LINE.fullmatch(next((line for line in lines if not line.startswith(_COMMENT)), ""))
    return found is not None and (not found[3] or any(_FRAME.fullmatch(part) for part in found[3].split(";")))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of the text, each thread with the stack in which it spent the most time; raises UnreadableEvidence."""
    spent: dict[_Stack, int] = {}
    for line in lines_of(text):
        sample = _LINE.fullmatch(line)
        if sample is None or not sample[3]:
            continue
        key = int(sample[1]), int(sample[2], 16 if sample[2].startswith("0x") else 10), sample[3]
        if key in spent or len(spent) < _MOST:
            spent[key] = spent.get(key, 0) + max(0, int(sample[4]))
    best: dict[tuple[int, int], tuple[int, str]] = {}
    for (pid, tid, stack), time in spent.items():
        if time > best.get((pid, tid), (-1, ""))[0]:
            best[pid, tid] = time, stack
            check_threads(len(best), limits)
    if not best:
        raise UnreadableEvidence("not the samples of austin: no stack in it", code="no-stack")
    threads: dict[int, list[Thread]] = {}
    for (pid, tid), (_, stack) in best.items():
        frames = tuple(_frames(stack, limits))
        check_frames(len(frames), limits)
        threads.setdefault(pid, []).append(Thread(MAIN if tid == pid else UNNAMED, tid, frames))
    return tuple(DumpedProcess(pid, tuple(found)) for pid, found in threads.items())


def _frames(stack: str, limits: Limits) -> Iterator[Frame]:
    for part in stack.split(";"):
        if found := _FRAME.fullmatch(part):  # else what could not be read, `:INVALID:`
            yield Frame(text_of(found[2], limits), text_of(installed_path(found[1]), limits), int(found[3]))
