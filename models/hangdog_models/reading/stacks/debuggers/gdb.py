"""Reads the text of gdb's `thread apply all bt`, as `gstack` and `pstack` print it too: native stacks."""

import re
from collections.abc import Iterator

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.debuggers.gdb_sections import GdbProcess, GdbThread, header_of, processes_of
from hangdog_models.reading.stacks.dumped_process import LONGEST_LINE, DumpedProcess, lines_of, split_bracket
from hangdog_models.stack import Frame, Thread

_FRAME = re.compile(r"#\d{1,6}\s+(?:0x[0-9a-fA-F]+ in )?(\S.*)")
_FROM = re.compile(r"(.*) from (\S+)")
_AT = re.compile(r"(.*) at (\S+?)(?::(\d{1,9}))?")


def recognises(head: str) -> bool:
    """Whether a text has a gdb thread header and a frame number in its first lines."""
    return any(header_of(line) for line in lines_of(head)) and any(line.startswith("#0 ") for line in lines_of(head))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of the text; a pid is the task id of gdb's thread 1, which is a live process's first thread."""
    found = tuple(filter(None, (_process(process, limits) for process in processes_of(text, limits))))
    if not found:
        raise UnreadableEvidence("not the text of gdb's `thread apply all bt`: no thread in it")
    return found


def _process(process: GdbProcess, limits: Limits) -> DumpedProcess | None:
    """The threads that have a header; None where none has a frame: a listing of `py-bt` stands beside that of `bt`."""
    threads = [(thread, tuple(_calls(thread))) for thread in process.threads if thread.number]
    if not any(calls for _, calls in threads):
        return None
    return DumpedProcess(
        process.pid,
        tuple(
            Thread(thread.name, thread.tid, tuple(frame_of_call(call, limits) for call in reversed(calls)))
            for thread, calls in threads
        ),
        native=True,
    )


def _calls(thread: GdbThread) -> Iterator[str]:
    """The frames, innermost first; gdb breaks long frames into indented lines."""
    call = ""
    for line in thread.lines:
        if frame := _FRAME.fullmatch(line):
            if call:
                yield call
            call = frame[1]
        elif line[:1].isspace() and call and len(call) < LONGEST_LINE:
            call += " " + line.strip()
    if call:
        yield call


def frame_of_call(line: str, limits: Limits) -> Frame:
    """A native frame from what gdb writes behind its number and address."""
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
