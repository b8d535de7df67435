"""Frames and threads as the commands that show raw stacks write them, for people and as JSON."""

from rich.cells import cell_len, set_cell_size

from hangdog_models.reading.printable import printable
from hangdog_models.stack import Frame, ProcessState, Thread

#: Characters of one name for people; the longest honest ones are C++ symbols, whose head tells all. JSON has all of it.
NAME = 300

#: Columns that the end of a path is worth: a file's name and its line.
PLACE = 12


def frame_said(frame: Frame) -> str:
    """`step (train.py:12)`, of a native frame with its library."""
    place = printable(frame.module or frame.file, NAME)
    return f"{printable(frame.function, NAME)} ({place}{f':{frame.line}' if frame.line else ''})"


def frame_fitted(frame: Frame, width: int) -> str:
    """The same in so many columns: of a path its beginning goes first, then the end of all."""
    said = frame_said(frame)
    if cell_len(said) <= width:
        return said
    function, _, place = said.rpartition(" (")
    room = width - cell_len(function) - 3
    if room >= PLACE:
        while cell_len(place) > room:
            place = place[1:]
        return f"{function} (…{place}"
    return f"{set_cell_size(said, width - 1).rstrip()}…"


def thread_said(thread: Thread, main: bool) -> str:
    """`MainThread: trains, asleep`: its name and what is known of it."""
    known = {"trains": main, "running": thread.active, "asleep": thread.active is False, "holds the GIL": thread.gil}
    words = ", ".join(word for word, true in known.items() if true)
    name = printable(thread.name or "", NAME) or (f"thread {thread.tid}" if thread.tid else "a thread")
    return f"{name}{f': {words}' if words else ''}"


def state_said(state: ProcessState | None) -> str:
    """`state S, in futex_wait`: what the kernel says, as far as it does."""
    if state is None:
        return ""
    parts = ((f"state {state.state}", state.state), (f"in {state.wchan}", state.wchan))
    return ", ".join(printable(said, NAME) for said, known in parts if known)


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
