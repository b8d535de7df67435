"""What every stack reader returns: the processes a file speaks of, before anybody says whose they are."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import Limits
from hangdog_models.stack import Thread

#: What a tool adds for a terminal, caught by `script` or a pasted screen.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

#: The folders that packages are installed in: what is above them differs between machines.
_INSTALLED = re.compile(r"^.*/(?:site-packages|dist-packages)/")

_BRACKET = re.compile(r"[()]")
#: What people write behind a frame, `<- hangs here`; a place in a source, a bracket or a function stands before it.
_REMARK = re.compile(r"(?<=[\w)>])[ \t]{1,200}(?:<[-=]|#|//|[\u2190\u21d0\u2b05\u27f5\u25c0\u25c4\U0001f448])")
_LINE = re.compile(r"[^\n]+")
#: The name Python gives a process's first thread: what a reader that can tell that thread calls it.
MAIN = "MainThread"
#: The name of a thread that is not the main one and that its tool did not name: no reader may take it for the main thread.
UNNAMED = "unnamed"
#: Characters of a line: the longest symbol seen has 3,469 and gdb writes the arguments' types and values beside it.
LONGEST_LINE = 1 << 14


@dataclass(frozen=True, slots=True)
class DumpedProcess:
    """The threads of one process; `pid` None and `command` empty where the file does not tell.

    `ranks` are those that the text itself gives it, several where a listing merges equal stacks; `local` is its rank on
    its machine, where only that is told; `host` is the machine, where the text names one. `native`: the tool sees no
    Python frames.
    """

    pid: int | None
    threads: tuple[Thread, ...]
    command: str = ""
    ranks: tuple[Rank, ...] = ()
    local: int | None = None
    host: str = ""
    native: bool = False


def check_frames(frames: int, limits: Limits) -> None:
    """Raises UnreadableEvidence when one thread has more frames than the limit."""
    if frames > limits.frames:
        raise UnreadableEvidence(
            f"a thread of {frames} frames; {limits.frames} are read (limit frames)", code="too-many"
        )


def check_threads(threads: int, limits: Limits) -> None:
    """Raises UnreadableEvidence when one file has more threads than the limit."""
    if threads > limits.threads:
        raise UnreadableEvidence(f"more than {limits.threads} threads (limit threads)", code="too-many")


def lines_of(text: str) -> Iterator[str]:
    """The lines of a tool's text that are not blank, without colours and trailing space; overlong ones are cut."""
    for line in _LINE.finditer(text):
        cut = line[0][:LONGEST_LINE].rstrip()
        yield _COLOUR.sub("", cut) if "\x1b" in cut else cut


def without_remark(frame: str) -> str:
    """A frame without what a person wrote behind it."""
    remark = _REMARK.search(frame)
    return frame[: remark.start()] if remark else frame


def split_bracket(text: str) -> tuple[str, str]:
    """`name` and `inside` of `name (inside)`, where `inside` may hold brackets too; the whole text and nothing otherwise."""
    depth = 0
    for bracket in reversed(list(_BRACKET.finditer(text)) if text.endswith(")") else ()):
        depth += 1 if bracket[0] == ")" else -1
        if depth == 0:
            at = bracket.start()
            return (text[: at - 1], text[at + 1 : -1]) if at and text[at - 1] == " " else (text, "")
    return text, ""


def installed_path(path: str, short: str = "") -> str:
    """The path of a source file below the folder that packages are installed in; `short`, or the path as it is, where it is elsewhere.

    py-spy's short path drops every folder above the topmost `__init__.py`, and with it the name of a namespace package:
    Megatron-Core's `megatron/core/...` becomes `core/...`.
    """
    below = _INSTALLED.sub("", path)
    return below if below != path else short or path
