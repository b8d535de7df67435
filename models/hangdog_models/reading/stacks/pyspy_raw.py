"""Reads the lines of `py-spy record --format raw`: one stack a line, outermost frame first, and how often it was sampled."""

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
    lines_of,
    split_bracket,
)
from hangdog_models.reading.stacks.pyspy_text import frame_of
from hangdog_models.stack import Thread

_COUNT = re.compile(r"\d{1,12}")
#: With `--subprocesses` all processes from the recorded one down to the thread's own stand before the frames.
_PROCESS = re.compile(r'process (\d{1,18}):"(.*)"')
#: With `--threads` the thread stands before its frames.
_THREAD = re.compile(r"thread \((0x[0-9a-fA-F]{1,16}|\d{1,18})\)(?:: (.*))?")
_PLACED = re.compile(r".+ \((?:.+\.py|<[\w. -]{1,100}>)(?::\d{1,9})?\)")

_Key = tuple[int | None, int, str]


def recognises(head: str) -> bool:
    """Whether the first whole line is a stack of Python frames with a number behind it."""
    frames, _ = _counted(next(lines_of(head), ""))
    return len(frames) > 1 and any(_PLACED.fullmatch(frame) for frame in frames)


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of the text, each thread with the stack in which it was sampled most often.

    Without `--threads` a thread is known by its outermost frame only. Without `--idle` threads that slept are not in it.
    """
    best: dict[_Key, tuple[int, Thread]] = {}
    commands: dict[int | None, str] = {}
    for line in lines_of(text):
        frames, times = _counted(line)
        check_frames(len(frames), limits)
        pid, tid, name = None, 0, ""
        while frames and (found := _PROCESS.fullmatch(frames[0]) or _THREAD.fullmatch(frames[0])):
            if found.re is _PROCESS:
                pid = int(found[1])
                commands[pid] = text_of(found[2], limits)
            else:
                tid = int(found[1], 16 if found[1].startswith("0x") else 10)
                name = text_of(found[2] or "", limits)
            frames = frames[1:]
        kept = tuple(frame_of(*split_bracket(frame), limits) for frame in frames)
        if not kept:
            continue
        entry = next((frame for frame in kept if not frame.native), kept[0])
        main = name == MAIN or (not name and entry.function == "<module>")
        key = (pid, tid, "" if tid else f"{entry.function} {entry.file}")
        if key not in best or times > best[key][0]:
            best[key] = (times, Thread(MAIN if main else name or UNNAMED, tid, kept))
            check_threads(len(best), limits)
    if not best:
        raise UnreadableEvidence("not the lines of py-spy record: no stack in it", code="no-stack")
    return tuple(_processes(best, commands))


def _counted(line: str) -> tuple[list[str], int]:
    """The frames of a line and the number behind them; nothing where there is none."""
    stack, _, count = line.rpartition(" ")
    return (stack.split(";"), int(count)) if stack and _COUNT.fullmatch(count) else ([], 0)


def _processes(best: dict[_Key, tuple[int, Thread]], commands: dict[int | None, str]) -> Iterator[DumpedProcess]:
    threads: dict[int | None, list[Thread]] = {}
    for (pid, _, _), (_, thread) in best.items():
        threads.setdefault(pid, []).append(thread)
    for pid, found in threads.items():
        yield DumpedProcess(pid, tuple(found), commands.get(pid, ""))
