"""Reads the text of `py-spy dump`: one process after another, each thread innermost frame first."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import (
    DumpedProcess,
    check_frames,
    check_threads,
    installed_path,
    lines_of,
    split_bracket,
    without_remark,
)
from hangdog_models.stack import Frame, Thread

_PROCESS = re.compile(r"Process (\d{1,18}): ?(.*)")
#: People who copy a dump leave the thread's id out, or the colon.
_THREAD = re.compile(r'Thread (?:(0x[0-9a-fA-F]{1,16}|\d{1,18})(?:/\S+)? )?\((active|active\+gil|idle)\)(?::? "(.*)")?')
#: What `--locals` adds below a frame: user data, never kept.
_LOCALS = ("Arguments:", "Locals:")
_LIBRARY = re.compile(r"\.so(?:\.[\d.]{1,40})?$|\.(?:c|cc|cpp|cxx|cu|h|hpp|S)$")


@dataclass(slots=True)
class _Open:
    """A thread whose frames are still being read, innermost first."""

    name: str | None
    tid: int
    mark: str
    indent: int | None = None
    frames: list[Frame] = field(default_factory=list)


def recognises(head: str) -> bool:
    """Whether a text has the header of a py-spy thread in its first lines."""
    return any(_THREAD.fullmatch(line) for line in lines_of(head))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of one or several dumps, in the order of the text; raises UnreadableEvidence."""
    processes: list[tuple[int | None, str, list[_Open]]] = []
    count = 0
    for line in lines_of(text):
        if line[:1] not in "PT":
            if processes and processes[-1][2]:
                _add(processes[-1][2][-1], line, limits)
        elif process := _PROCESS.fullmatch(line):
            processes.append((int(process[1]), text_of(process[2], limits), []))
        elif thread := _THREAD.fullmatch(line):
            check_threads(count := count + 1, limits)
            if not processes:  # the header was cut off
                processes.append((None, "", []))
            processes[-1][2].append(_Open(text_of(thread[3], limits) or None, _number(thread[1]), thread[2]))
    if not count:
        raise UnreadableEvidence("not the text of py-spy dump: no thread in it", code="no-stack")
    return tuple(DumpedProcess(pid, tuple(_closed(threads)), command) for pid, command, threads in processes if threads)


def _number(digits: str | None) -> int:
    """A thread's id: decimal with native ids, else hexadecimal; `007` is seven, which Python's own notation does not know.

    0 where it was left out.
    """
    return int(digits, 16 if digits.startswith("0x") else 10) if digits else 0


def _add(thread: _Open, line: str, limits: Limits) -> None:
    """Adds a frame; lines that stand deeper than a frame are arguments and locals, lines at the margin are no frames."""
    indent = len(line) - len(line.lstrip())
    if not indent or (thread.indent is not None and indent > thread.indent) or line.strip() in _LOCALS:
        return
    name, place = split_bracket(without_remark(line.strip()))
    if not place:
        return
    thread.indent = indent
    thread.frames.append(frame_of(name, place, limits))
    check_frames(len(thread.frames), limits)


def frame_of(name: str, place: str, limits: Limits) -> Frame:
    """A frame from its name and what stands in brackets behind it: a file with a line, or a library."""
    place = place.removesuffix(" (deleted)")
    file, colon, digits = place.rpartition(":")
    known = colon and digits.isascii() and digits.isdigit() and len(digits) < 10
    file, line = (file, int(digits)) if known else (place, 0)
    # The text does not tell native frames from Python's; their places do: a library, a C source, or no line at all.
    native = _LIBRARY.search(file) is not None or (not line and not file.endswith(".py") and file[:1] != "<")
    file = text_of(file if native else installed_path(file), limits)  # whole with --full-filenames
    return Frame(text_of(name, limits), file, line, file or "??" if native else None)


def _closed(threads: list[_Open]) -> Iterator[Thread]:
    for thread in threads:
        # `idle` is printed whether or not the thread holds the GIL; `active` is printed only for one without it.
        gil = None if thread.mark == "idle" else thread.mark == "active+gil"
        yield Thread(thread.name, thread.tid, tuple(reversed(thread.frames)), thread.mark != "idle", gil)
