"""Reads the text of `pystack remote` and `pystack core`: threads with Python and native frames, outermost first."""

import re

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import (
    DumpedProcess,
    check_frames,
    check_threads,
    lines_of,
    split_bracket,
)
from hangdog_models.stack import Frame, Thread

_THREAD = re.compile(r"(?:Traceback|The frame stack) for thread (\d{1,18}) (?:\((.*?)\) )?(?:\[(.*?)\])?.*")
#: Everything else that is indented is a source line or a local variable, and is never kept.
_FRAME = re.compile(r'\s+\((\w[\w+]*)\) File "(.*?)", line (\d{1,9}), in (.*)')
#: The part of a path that differs between machines.
_INSTALLED = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
#: Only a process's first thread begins in these.
_ENTRY = ("_start", "__libc_start_main", "Py_BytesMain", "<module>")


def recognises(head: str) -> bool:
    """Whether a text has the header of a pystack traceback in its first lines."""
    return any(line.startswith("Traceback for thread ") and _THREAD.fullmatch(line) for line in lines_of(head))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The one process of the text; its pid is the id of its main thread, where that can be told.

    The state `Garbage collecting` is not kept: pystack derives it from any symbol with "collect" in it.
    """
    threads: list[tuple[re.Match[str], list[Frame]]] = []
    for line in lines_of(text):
        if header := _THREAD.fullmatch(line):
            check_threads(len(threads) + 1, limits)
            threads.append((header, []))
        elif threads and (frame := _FRAME.fullmatch(line)):
            threads[-1][1].append(_frame(frame, limits))
            check_frames(len(threads[-1][1]), limits)
    if not threads:
        raise UnreadableEvidence("not the text of pystack: no thread in it", code="no-stack")
    read_threads = tuple(_thread(header, frames, limits) for header, frames in threads)
    main = [thread.tid for thread in read_threads if thread.frames and thread.frames[0].function.startswith(_ENTRY)]
    return (DumpedProcess(main[0] if len(main) == 1 else None, read_threads),)


def _frame(line: re.Match[str], limits: Limits) -> Frame:
    kind, file, number, called = line.groups()
    place = text_of(_INSTALLED.sub("", file), limits)
    if kind == "Python":
        return Frame(text_of(called, limits), place, int(number))
    name, module = _symbol(called)
    return Frame(
        function=text_of("??" if name.startswith("??") else name, limits),
        file="" if place.startswith("??") else place,
        line=int(number),
        module=text_of(module, limits) or place,
    )


def _symbol(called: str) -> tuple[str, str]:
    """The symbol and the library of `symbol (inlined) (library)`; both brackets may be absent."""
    name, module = split_bracket(called)
    if "/" not in module and ".so" not in module:
        name, module = called, ""
    return name.removesuffix(" (inlined)"), module


def _thread(header: re.Match[str], frames: list[Frame], limits: Limits) -> Thread:
    tid, comm, status = header.groups(default="")
    # An empty status says nothing: pystack could not read the interpreter's lock, or the thread has no Python state.
    gil = True if "Has the GIL" in status else False if "GIL" in status else None
    return Thread(text_of(comm, limits) or None, int(tid), tuple(frames), gil=gil)
