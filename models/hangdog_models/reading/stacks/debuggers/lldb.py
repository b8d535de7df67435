"""Reads the text of lldb's `bt all` and `thread backtrace all`, and of `bt`: native stacks, innermost frame first."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import (
    MAIN,
    UNNAMED,
    DumpedProcess,
    check_frames,
    check_threads,
    lines_of,
)
from hangdog_models.stack import Frame, Thread

#: An asterisk marks the thread that is selected, and its frame. lldb before 4 wrote the task's id into the header.
_THREAD = re.compile(r" {0,8}(?:\* )?thread #(\d{1,9})(?:: tid = (0x[0-9a-fA-F]{1,16}|\d{1,18}))?(?:,(.*))?")
_FRAME = re.compile(r" {0,12}(?:\* )?frame #(\d{1,6}): 0x[0-9a-fA-F]{1,16}(?: (\S.*))?")
_NAME = re.compile(r"(?<=, )name = '([^']{0,200})'")
#: What only the first thread of a process on macOS has.
_MAIN_QUEUE = "queue = 'com.apple.main-thread'"
#: What lldb says when it comes to a process, stops it, or lets it go.
_PROCESS = re.compile(r"(?:\(lldb\) )?(?:process attach --pid|Process) (\d{1,18})(?: (stopped|detached|launched\b.*))?")
#: A place in a source, with a column since lldb 6; `[opt]` and `[artificial]` may follow it.
_PLACE = re.compile(r"(.*) at (\S{1,4000}?):(\d{1,9})(?::\d{1,9})?(?: \[[a-z]{1,20}\]){0,4}")
_OFFSET = re.compile(r" \+ \d{1,18}$")
#: Where the values of arguments begin; a signature without debug information holds types, which are kept.
_VALUES = re.compile(r"\((?:[A-Za-z_][\w.]{0,400})=")
_INLINED = " [inlined] "
#: Where the C library starts every thread but the first: the outermost frames of such a thread.
_STARTS_THREADS = frozenset(
    {"clone", "clone3", "__clone", "__clone3", "start_thread", "_pthread_start", "thread_start", "start_wqthread"}
)


@dataclass(slots=True)
class _LldbThread:
    """A thread whose frames are still being read, innermost first. `before` are those of an earlier look at it."""

    tid: int
    name: str | None
    frames: list[Frame] = field(default_factory=list)
    before: list[Frame] = field(default_factory=list)

    def shown(self) -> tuple[Frame, ...]:
        """The frames of the last look, unless it shows one frame only, as lldb does whenever it stops."""
        return tuple(reversed(self.before if len(self.frames) < 2 and self.before else self.frames))


@dataclass(slots=True)
class _LldbProcess:
    """One process: its threads by lldb's numbers. `over`: lldb let it go."""

    pid: int | None = None
    threads: dict[int, _LldbThread] = field(default_factory=dict)
    over: bool = False


def recognises(head: str) -> bool:
    """Whether a text has lldb's header of a thread with a frame below it in its first lines."""
    thread = False
    for line in lines_of(head):
        if thread and _FRAME.fullmatch(line):
            return True
        thread = _THREAD.fullmatch(line) is not None
    return False


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of the text, in its order; raises UnreadableEvidence."""
    found = tuple(_dumped(listed) for listed in _listings(text, limits) if listed.threads)
    if not found:
        raise UnreadableEvidence("not the text of lldb's `bt all`: no thread in it", code="no-stack")
    return found


def _listings(text: str, limits: Limits) -> list[_LldbProcess]:
    found, count = [_LldbProcess()], 0
    thread: _LldbThread | None = None
    for line in lines_of(text):
        if header := _THREAD.fullmatch(line):
            check_threads(count := count + 1, limits)
            thread = _begin(found, header, limits)
        elif frame := _FRAME.fullmatch(line):
            if thread is not None:
                _add(thread, frame, limits)
        elif process := _PROCESS.fullmatch(line):
            _take_process(found, int(process[1]), process[2] == "detached")
            thread = None
    return found


def _take_process(found: list[_LldbProcess], pid: int, detached: bool) -> None:
    current = found[-1]
    if current.pid not in (None, pid) or (not detached and (current.over or (current.pid is None and current.threads))):
        found.append(current := _LldbProcess())
    current.pid, current.over = pid, detached


def _begin(found: list[_LldbProcess], header: re.Match[str], limits: Limits) -> _LldbThread:
    """Begins a thread, and a process where lldb let the last one go, or lists a first thread again that had a stack."""
    number, tid, rest = int(header[1]), header[2] or "", header[3] or ""
    current = found[-1]
    known = current.threads.get(number)
    again = number == 1 and current.pid is None and known is not None
    if current.over or (again and any(len(one.frames) > 1 for one in current.threads.values())):
        found.append(current := _LldbProcess())
        known = None
    named = _NAME.search(f",{rest}")
    name = MAIN if _MAIN_QUEUE in rest else text_of(named[1], limits) if named else None
    thread = known or _LldbThread(int(tid, 16 if tid.startswith("0x") else 10) if tid else 0, name)
    current.threads[number] = thread
    return thread


def _add(thread: _LldbThread, line: re.Match[str], limits: Limits) -> None:
    if int(line[1]) == 0 and thread.frames:
        thread.before = thread.frames if len(thread.frames) > 1 else thread.before
        thread.frames = []
    thread.frames.append(_frame(line[2] or "", limits))
    check_frames(len(thread.frames), limits)


def _frame(call: str, limits: Limits) -> Frame:
    """A native frame from what lldb writes behind its address: the library, an accent, the function, and its place."""
    module, _, function = call.partition("`")
    file, line = "", 0
    if place := _PLACE.fullmatch(function):
        function, file, line = place[1], place[2], int(place[3])
    function = _OFFSET.sub("", function).rpartition(_INLINED)[2]
    if values := _VALUES.search(function):
        function = function[: values.start()]
    name = text_of(function, limits) or "??"
    return Frame(name, text_of(file, limits), line, text_of(_OFFSET.sub("", module), limits) or "??")


def _dumped(listed: _LldbProcess) -> DumpedProcess:
    return DumpedProcess(listed.pid, tuple(_threads(listed)), native=True)


def _threads(listed: _LldbProcess) -> Iterator[Thread]:
    """The threads. The first one is the main thread, but for a core's, where it is the one that ended the program."""
    main = any(thread.name == MAIN for thread in listed.threads.values())
    for number, thread in listed.threads.items():
        name, tid, frames = thread.name, thread.tid, thread.shown()
        if number == 1 and not main and not any(frame.function in _STARTS_THREADS for frame in frames[:2]):
            name = MAIN
        yield Thread(name or UNNAMED, tid, frames)
