"""Frames and threads as the commands that show raw stacks write them, for people and as JSON."""

import re

from rich.cells import cell_len, set_cell_size

from hangdog_models.reading.printable import printable
from hangdog_models.stack import Frame, ProcessState, Thread

#: Characters of one name for people; the longest honest ones are C++ symbols, whose head tells all. JSON has all of it.
NAME = 300

#: Columns that the end of a path is worth beside the whole name of the function, and where that has to be cut for it.
MIN_PATH, MIN_CUT_PATH = 12, 20
#: Columns in which both are cut: of fewer, neither would get enough to tell anything.
MIN_BOTH = 34
#: What may stand behind the name of a C++ function, of which the end is kept.
_ARGUMENTS = re.compile(r"\([^()]*\)( const)?$")


def frame_text(frame: Frame) -> str:
    """`step (train.py:12)`, of a native frame with its library."""
    location = printable(frame.module or frame.file, NAME)
    return f"{printable(frame.function, NAME)} ({location}{f':{frame.line}' if frame.line else ''})"


def frame_fitted(frame: Frame, width: int) -> str:
    """The same in so many columns; see `fitted`."""
    return fitted(frame_text(frame), width)


def fitted(text: str, width: int) -> str:
    """`step (/a/b/train.py:12)` in so many columns: first the path's folders go, then the beginnings of both."""
    if cell_len(text) <= width:
        return text
    function, _, location = text.removesuffix(")").rpartition(" (")
    room = width - cell_len(function) - 3
    if room < MIN_PATH:
        if not function or width < MIN_BOTH:
            return f"{set_cell_size(text, width - 1).rstrip()}…"
        function = _ARGUMENTS.sub("", function)
        room = max(MIN_CUT_PATH, width - cell_len(function) - 3)
    location = _path(location, room)
    return f"{_ending(function, width - cell_len(location) - 3)} ({location})"


def _path(path: str, room: int) -> str:
    if cell_len(path) <= room:
        return path
    folders = path.split("/")
    shorter = ("/".join(("…", *folders[first:])) for first in range(1, len(folders)))
    return next((one for one in shorter if cell_len(one) <= room), _ending(folders[-1], room))


def _ending(text: str, room: int) -> str:
    if cell_len(text) <= room:
        return text
    while cell_len(text) > room - 1:
        text = text[1:]
    return f"…{text}"


def thread_text(thread: Thread, main: bool) -> str:
    """`MainThread: trains, asleep`: its name and what is known of it."""
    known = {"trains": main, "running": thread.active, "asleep": thread.active is False, "holds the GIL": thread.gil}
    states = ", ".join(word for word, true in known.items() if true)
    name = printable(thread.name or "", NAME) or (f"thread {thread.tid}" if thread.tid else "a thread")
    return f"{name}{f': {states}' if states else ''}"


def state_text(state: ProcessState | None) -> str:
    """`state S, in futex_wait`: what the kernel says, as far as it does."""
    if state is None:
        return ""
    parts = ((f"state {state.state}", state.state), (f"in {state.wchan}", state.wchan))
    return ", ".join(printable(text, NAME) for text, known in parts if known)


def frame_json(frame: Frame) -> dict[str, object]:
    """A frame as JSON; `library` is null of a Python frame."""
    return {"function": frame.function, "file": frame.file, "line": frame.line, "library": frame.module}


def thread_json(thread: Thread, main: bool) -> dict[str, object]:
    """A thread as JSON, its frames outermost first; null is what is not known."""
    return {
        "name": thread.name,
        "tid": thread.tid or None,
        "trains": main,
        "active": thread.active,
        "gil": thread.gil,
        "frames": [frame_json(frame) for frame in thread.frames],
    }
