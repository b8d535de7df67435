"""Reads the text of gdb's `thread apply all bt`, as `gstack` and `pstack` print it too, and of `bt`: native stacks."""

import re
from collections.abc import Iterator, Sequence

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.debuggers.gdb_sections import (
    GdbProcess,
    GdbThread,
    header_of,
    lines_of_gdb,
    processes_of,
)
from hangdog_models.reading.stacks.dumped_process import LONGEST_LINE, MAIN, UNNAMED, DumpedProcess, split_bracket
from hangdog_models.stack import Frame, Thread

_FRAME = re.compile(r"#(\d{1,6})\s+(?:0x[0-9a-fA-F]+ in )?(\S.*)")
#: A frame as only gdb writes it: the number padded to three places, and arguments even where none are known. `py-bt-full` numbers, too.
_GDB_FRAME = re.compile(r"#(?:\d  |\d{2,6} )(?:0x[0-9a-fA-F]{1,16} in )?(?!0x|Frame 0x|for file )\S.*?\(")
#: What gdb says beside the frames.
_SAYS = (
    "bt", "[New LWP ", "[Thread debugging ", "[Inferior ", "[Detaching ", "Attaching to ", "Detaching ", "Using host libthread_db ",
    "Reading symbols ", "warning: ", "Missing separate debuginfo", "Download failed: ", "--Type <RET> ", "0x", "(gdb)", "[Current thread is ",
)  # fmt: skip
_FROM = re.compile(r"(.*) from (\S+)")
_AT = re.compile(r"(.*) at (\S+?)(?::(\d{1,9}))?")
#: Where the C library starts every thread but the first.
_STARTS_THREADS = ("clone", "clone3", "__clone", "__clone3", "start_thread", "thread_start")


def recognises(head: str) -> bool:
    """Whether a text has a gdb thread header and a frame number in its first lines, or is what gdb's `bt` prints."""
    lines = tuple(lines_of_gdb(head))
    if any(header_of(line) for line in lines) and any(line.startswith("#0 ") for line in lines):
        return True
    return _is_backtrace(lines)


def _is_backtrace(lines: Sequence[str]) -> bool:
    """Whether half of the lines, or more, are gdb's, and two frames follow each other: a log may hold frames, too."""
    last, followed, of_gdb = "", False, 0
    for line in lines:
        if _GDB_FRAME.match(line):
            followed = followed or (last == "#0 " and line.startswith("#1 "))
            last = line[:3]
            of_gdb += 1
        elif (last and line[:1].isspace()) or line.startswith(_SAYS):
            of_gdb += 1
    return followed and 2 * of_gdb >= len(lines)


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of the text; a pid is the task id of gdb's thread 1, which is a live process's first thread."""
    found = tuple(one for process in processes_of(text, limits) for one in _processes(process, limits))
    if not found:
        raise UnreadableEvidence(
            "not the text of gdb's `bt` or `thread apply all bt`: no thread in it", code="no-stack"
        )
    return found


def _processes(process: GdbProcess, limits: Limits) -> Iterator[DumpedProcess]:
    """The process with the threads that have a header, or where none has, one for each `bt`.

    None where no thread has a frame: a listing of `py-bt` stands beside that of `bt`.
    """
    stacks = [(thread, tuple(_stacks(thread))) for thread in process.threads]
    headed = [(thread, max(calls, key=len, default=())) for thread, calls in stacks if thread.number]
    bare = [calls for thread, found in stacks if not thread.number for calls in found]
    if not any(calls for _, calls in headed):
        for calls in bare:
            yield DumpedProcess(process.pid, (_alone(calls, process.pid, limits),), native=True)
        return
    threads = [Thread(thread.name, thread.tid, _frames(calls, limits)) for thread, calls in headed]
    if bare and process.pid is None:  # somebody asked for the main thread before choosing another
        threads.insert(0, _alone(bare[-1], None, limits))
    yield DumpedProcess(process.pid, tuple(threads), native=True)


def _alone(calls: Sequence[str], pid: int | None, limits: Limits) -> Thread:
    """The thread of a `bt`: gdb attaches to the main one, and a core's may be any."""
    frames = _frames(calls, limits)
    return Thread(UNNAMED if frames[0].function in _STARTS_THREADS else MAIN, pid or 0, frames)


def _frames(calls: Sequence[str], limits: Limits) -> tuple[Frame, ...]:
    return tuple(frame_of_call(call, limits) for call in reversed(calls))


def _stacks(thread: GdbThread) -> Iterator[tuple[str, ...]]:
    """The frames of each stack below a header, innermost first; gdb breaks long frames into indented lines.

    Below one header there are several where it was printed again.
    """
    calls: list[str] = []
    for line in thread.lines:
        if frame := _FRAME.fullmatch(line):
            if int(frame[1]) == 0 and calls:
                yield tuple(calls)
                calls = []
            calls.append(frame[2])
        elif line[:1].isspace() and calls and len(calls[-1]) < LONGEST_LINE:
            calls[-1] += " " + line.strip()
    if calls:
        yield tuple(calls)


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
