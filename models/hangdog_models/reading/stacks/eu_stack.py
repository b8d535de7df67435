"""Reads the text of elfutils' `eu-stack`: native stacks of all threads of a process, innermost frame first."""

import re

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import UNNAMED, DumpedProcess, check_frames, check_threads, lines_of
from hangdog_models.stack import Frame, Thread

_PROCESS = re.compile(r"PID (\d{1,18}) - (?:process|core)(?: module memory map)?")
_THREAD = re.compile(r"TID (\d{1,18}):")
#: With `--verbose` a mark says whether the address is that of the call, with `--module` the library follows.
_FRAME = re.compile(r"#\d{1,6} +0x[0-9a-fA-F]{1,16}(?: +- 1)?(?: +(?!- )(\S.*?))?(?: +- (/\S.*|\[\w+\]))?")
#: With `--source` the place of a frame follows in a line of its own.
_PLACE = re.compile(r" {4}(\S.*?):(\d{1,9})(?::\d{1,9})?")


def recognises(head: str) -> bool:
    """Whether a text has a thread of `eu-stack` with a frame in its first lines."""
    thread = False
    for line in lines_of(head):
        if thread and _FRAME.fullmatch(line):
            return True
        thread = _THREAD.fullmatch(line) is not None
    return False


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of the text, in its order; raises UnreadableEvidence."""
    processes: list[tuple[int | None, list[tuple[int, list[Frame]]]]] = []
    count = 0
    for line in lines_of(text):
        if process := _PROCESS.fullmatch(line):
            pid = int(process[1])
            if not processes or processes[-1][0] != pid:
                processes.append((pid, []))
        elif thread := _THREAD.fullmatch(line):
            check_threads(count := count + 1, limits)
            if not processes:  # the header was cut off
                processes.append((None, []))
            processes[-1][1].append((int(thread[1]), []))
        elif processes and processes[-1][1]:
            frames = processes[-1][1][-1][1]
            if frame := _FRAME.fullmatch(line):
                module = text_of(frame[2] or "", limits) or "??"
                frames.append(Frame(text_of(frame[1] or "??", limits), "", 0, module))
                check_frames(len(frames), limits)
            elif frames and (place := _PLACE.fullmatch(line)):
                last = frames[-1]
                frames[-1] = Frame(last.function, text_of(place[1], limits), int(place[2]), last.module)
    found = tuple(_process(pid, threads) for pid, threads in processes if threads)
    if not found:
        raise UnreadableEvidence("not the text of eu-stack: no thread in it", code="no-stack")
    return found


def _process(pid: int | None, threads: list[tuple[int, list[Frame]]]) -> DumpedProcess:
    name = None if pid is not None or len(threads) == 1 else UNNAMED  # without its pid nothing tells the main thread
    return DumpedProcess(pid, tuple(Thread(name, tid, tuple(reversed(frames))) for tid, frames in threads), native=True)
