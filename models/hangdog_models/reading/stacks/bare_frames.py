"""Reads a stack without a thread's header: below a set of ranks, as people and merging tools write it, or alone in a text."""

import re
from collections.abc import Iterable
from itertools import pairwise

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.debuggers.gdb import frame_of_call
from hangdog_models.reading.stacks.dumped_process import (
    MAIN,
    DumpedProcess,
    check_frames,
    installed_path,
    lines_of,
    split_bracket,
    without_remark,
)
from hangdog_models.reading.stacks.pyspy_text import frame_of
from hangdog_models.stack import Frame, Thread

#: What draws a tree or a list before a frame.
_DRAWN = " \t|+*\u2022\u2502\u251c\u2514\u2500\u2570\u256d>-`\\"
_NATIVE = re.compile(r"#\d{1,6}\s+(?:0x[0-9a-fA-F]{1,16} in )?(\S.*)")
_FILE = re.compile(r'File "(.{1,4000}?)", line (\d{1,9})(,?) in (\S.{0,4000})')
_PLACED = re.compile(r".{1,4000}:\d{1,9}|.{1,4000}\.so[\d.]{0,40}")
_AT = re.compile(r"(\S{1,4000}?)(?:\(\))? at (\S{1,4000}):(\d{1,9}|\?)")
_IN = re.compile(r"(\S{1,4000}\.py):(\d{1,9})(?::|,)?\s{1,40}(?:in )?([\w.<>]{1,1000})(?:\(\))?")
#: Functions in which programs and threads begin: they tell the order of a stack.
_OUTERMOST = {
    "<module>", "_start", "main", "__libc_start_main", "Py_BytesMain", "start_thread", "clone", "clone3", "_bootstrap",
    "Thread._bootstrap", "_run_module_as_main",
}  # fmt: skip
#: Frames that a text must have to be taken for a stack, and the part of its lines that must be frames.
_FEW, _NEARLY_ALL = 3, 0.8
_LAST, _FIRST = "most recent call last", "most recent call first"
#: How an exception that was raised begins: it tells where a thread was, not where it is.
_RAISED = "Traceback (most recent call last)"


def recognises(head: str) -> bool:
    """Whether nearly all lines of a text are frames as py-spy writes them, with hardly a word around them."""
    lines = tuple(lines_of(head))
    frames = sum(_bracketed(without_remark(line.strip()), DEFAULTS) is not None for line in lines)
    return frames >= max(_FEW, _NEARLY_ALL * len(lines))


def read_text(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The one process of a text that is a stack alone: its first unbroken run of frames."""
    found = read(text.split("\n"), limits)
    if found is None:
        raise UnreadableEvidence("holds no stack in a form that is known", code="no-stack")
    return (found,)


def is_frame(line: str) -> bool:
    """Whether a line is a frame, whatever draws a list or a tree before it."""
    return _frame(line.lstrip(_DRAWN).rstrip(), None) is not None


def read(lines: Iterable[str], limits: Limits) -> DumpedProcess | None:
    """A process whose main thread has the first unbroken run of frames among the lines; None where there is no frame.

    Source lines below frames are passed over, and so is an exception's traceback.
    """
    frames: list[Frame] = []
    indents: list[int] = []
    inwards: bool | None = None  # whether the lines lead from the outermost frame inwards
    for line in lines:
        if not line.strip():
            if frames:
                break
            continue
        if _RAISED in line:
            return None
        if _LAST in line or _FIRST in line:
            inwards = _LAST in line
        read_frame = _frame(line.lstrip(_DRAWN).rstrip(), limits)
        if read_frame is not None:
            frame, order = read_frame
            inwards = order if inwards is None else inwards
            frames.append(frame)
            indents.append(len(line) - len(line.lstrip(_DRAWN)))
            check_frames(len(frames), limits)
    if not frames:
        return None
    if not _outwards(frames, indents, inwards):
        frames.reverse()
    return DumpedProcess(None, (Thread(MAIN, 0, tuple(frames)),), native=all(frame.native for frame in frames))


def _outwards(frames: list[Frame], indents: list[int], inwards: bool | None) -> bool:
    """Whether the frames are in the order in which they called each other: by where programs begin, else by how they are drawn."""
    first, last = frames[0].function in _OUTERMOST, frames[-1].function in _OUTERMOST
    if first != last:
        return first
    if len(indents) > 1 and all(low < high for low, high in pairwise(indents)):
        return True
    return bool(inwards)


def _frame(line: str, limits: Limits | None) -> tuple[Frame, bool | None] | None:
    """A frame, and whether its notation is one in which the outermost comes first; None: that is not known."""
    kept = limits or Limits()
    line = without_remark(line)
    if native := _NATIVE.fullmatch(line):
        return frame_of_call(native[1], kept), False
    if file := _FILE.fullmatch(line):
        path = text_of(installed_path(file[1]), kept)
        return Frame(text_of(file[4], kept), path, int(file[2])), bool(file[3])
    if at := _AT.fullmatch(line):
        python = at[2].endswith(".py")
        number = int(at[3]) if at[3] != "?" else 0
        place = text_of(installed_path(at[2]) if python else at[2], kept)
        return Frame(text_of(at[1], kept), place, number, None if python else place), None
    if inside := _IN.fullmatch(line):
        return Frame(text_of(inside[3], kept), text_of(installed_path(inside[1]), kept), int(inside[2])), None
    bracketed = _bracketed(line, kept)
    return (bracketed, None) if bracketed is not None else None


def _bracketed(line: str, limits: Limits) -> Frame | None:
    """A frame in py-spy's notation: `f (a.py:3)`, `f (libc.so.6)`."""
    name, place = split_bracket(line)
    if place and name and " " not in name.partition("<")[0].partition("(")[0] and _PLACED.fullmatch(place):
        return frame_of(name, place, limits)
    return None
