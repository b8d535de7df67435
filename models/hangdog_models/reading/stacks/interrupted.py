"""Reads where a program stood when somebody pressed Ctrl-C: a traceback that ends in KeyboardInterrupt is a stack of its main thread.

Python delivers the signal to the main thread only, at the point where that runs or waits. Lines of several processes may
be mixed; what stands before a line tells them apart, as in dumps of `faulthandler`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hangdog_models.ranks import Rank
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.line_owner import NOBODY, LineOwner, owner_of
from hangdog_models.reading.stacks.dumped_process import MAIN, DumpedProcess, installed_path, lines_of, without_remark
from hangdog_models.stack import Frame, Thread
from hangdog_models.training import is_no_rank

_BEGINS = "Traceback (most recent call last):"
_INTERRUPT = "KeyboardInterrupt"
#: What a terminal shows of the key, before the traceback or in a line of its own.
_KEY = "^C"
_FRAME = re.compile(r'File "(.*)", line (\d{1,9}), in (\S.*)')
_INTERRUPTED = re.compile(r"(?<![\w.])KeyboardInterrupt(?::.*)?$")
#: The line that ends a traceback of another kind.
_RAISED = re.compile(
    r"(?<![\w.])(?:\w{1,64}\.){0,8}(?:[A-Z]\w{0,64})?(?:Error|Exception|Exit|Empty|Full|Failure|Timeout|Iteration)(?=:|$)"
)
#: The end of a word or of an expression; a time stamp is none.
_WORD = re.compile(r"(?:(?<![\d])[^\W\d]|[\"'(,=.])$")
_WORDS_OF_ERRORS = ("Error", "Exception", "Exit", "Empty", "Full", "Failure", "Timeout", "Iteration")
#: What stands between the tracebacks of a chain.
_CHAINED = ("During handling of the above exception, another", "The above exception was the direct cause of")
#: What Python prints before tracebacks that say nothing of what the program waited for: it was ending already.
_ENDING = ("Exception ignored ", "Error in atexit", "Error in sys.excepthook", "Exception in thread ")
#: What torch runs when a collective has failed. An interrupt that had to wait for its end is delivered here.
_LOGGER = "torch/distributed/c10d_logger.py"
#: Processes told apart in one text, and stacks of one that nothing tells apart.
_MOST_PROCESSES, _MOST_STACKS = 1 << 16, 1 << 10
#: Tracebacks of one chain that are put together.
_LONGEST_CHAIN = 64


@dataclass(frozen=True, slots=True)
class _Raised:
    """A traceback, outermost frame first. `interrupted`: it ends in the interrupt, or where that was cut off, the key was shown."""

    frames: tuple[Frame, ...]
    interrupted: bool


@dataclass(slots=True)
class _Interrupted:
    """The tracebacks of one process. `found`: its stacks, one of each chain that was interrupted.

    `chain` are those before the one that is being read, `frames` its frames, `indent` the blanks before its first line;
    `open`: its last line is still to come; `chained`: another one of its chain follows. `by_key`: the key was shown before
    the chain; `ending`: nothing in it counts, the program was ending already.
    """

    found: list[tuple[Frame, ...]] = field(default_factory=list)
    chain: list[_Raised] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    indent: int = 0
    open: bool = False
    chained: bool = False
    by_key: bool = False
    ending: bool = False


def recognises(text: str) -> bool:
    """Whether a text may hold the traceback of an interrupted program; to be asked of the whole text."""
    return _BEGINS in text and (_INTERRUPT in text or _KEY in text)


def read(text: str, rank: Rank | None = None, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The interrupted processes of a text, in the order of their first lines. What no line tells belongs to `rank`.

    Launchers and workers of loaders are left out. A process that was started again counts as it was last interrupted;
    what nothing tells apart may be several processes, and each traceback stands for one.

    Never raises: what is past a limit is passed over, for the rest of a log is worth reading.
    """
    processes: dict[LineOwner, _Interrupted] = {}
    before = ""  # the line before
    loose: str | None = None  # what stands before a traceback's first line, where it may be output without a line end
    for line in lines_of(text):
        begins = line.find(_BEGINS)
        at = begins if begins >= 0 else _start(line)
        if at < 0:
            before = line
            continue
        owner = owner_of(line[:at].replace(_KEY, ""))
        if owner.rank is not None and owner.rank == rank:
            owner = NOBODY
        if owner not in processes and len(processes) < _MOST_PROCESSES:
            processes[owner] = _Interrupted()
        if (process := processes.get(owner)) is not None:
            if begins >= 0:
                _begin(process, line[:at], before)
            elif loose is not None and not process.open:
                _begin(process, "", loose)
            if begins < 0:
                _take(process, line, at, limits)
        loose = line[:at] if begins >= 0 and owner.text else None
        before = line
    return tuple(found for owner, process in processes.items() for found in _dumped(owner, rank, process, limits))


def _start(line: str) -> int:
    """Where what a line says of a traceback begins in it; -1 for lines of others."""
    at = line.rfind(", line ")
    if at >= 0:
        at = line.rfind('File "', 0, at)
        return at if at >= 0 and _FRAME.match(line, at) else -1
    if _INTERRUPT in line:
        found = _INTERRUPTED.search(line)
        return found.start() if found and _stands_alone(line[: found.start()]) else -1
    for words in _CHAINED:
        if words in line:
            return line.index(words)
    if any(word in line for word in _WORDS_OF_ERRORS):
        found = _RAISED.search(line)
        return found.start() if found and _stands_alone(line[: found.start()]) else -1
    return -1


def _stands_alone(prefix: str) -> bool:
    """Whether nothing but a launcher's or logger's mark is before the name of an exception: a line of a source has words there."""
    before = prefix.rstrip()
    return _WORD.search(before) is None


def _begin(process: _Interrupted, prefix: str, before: str) -> None:
    """Begins a traceback, and a chain if it continues none. What is open then is mixed with lines of another process."""
    if not process.chained:
        process.open = False
        _finish(process)
        process.ending = any(words in before for words in _ENDING)
        process.by_key = _KEY in prefix or before.rstrip().endswith(_KEY)
    process.frames, process.open, process.chained = [], True, False
    process.indent = _depth(prefix)


def _take(process: _Interrupted, line: str, at: int, limits: Limits) -> None:
    """Adds what one line says of the traceback that is being read."""
    if frame := _FRAME.match(line, at):
        if process.open and len(process.frames) < limits.frames:
            file, number, function = frame.groups()
            path = text_of(installed_path(file), limits)
            process.frames.append(Frame(text_of(without_remark(function), limits), path, int(number)))
    elif line.startswith(_CHAINED, at):
        _close(process, process.by_key)
        process.chained = True
    elif _depth(line[:at]) <= process.indent:
        _close(process, line.startswith(_INTERRUPT, at))


def _depth(prefix: str) -> int:
    """How many blanks stand before a line, behind what a launcher put there."""
    return len(prefix) - len(prefix.rstrip(" "))


def _close(process: _Interrupted, interrupted: bool) -> None:
    if process.open and len(process.chain) < _LONGEST_CHAIN:
        process.chain.append(_Raised(tuple(process.frames), interrupted))
    process.open = False


def _finish(process: _Interrupted) -> None:
    """Keeps the stack of a chain: of the first one that was interrupted, for then the program waited no more.

    A traceback in a chain begins at the frame that handled it; those that follow show from where that was called.
    """
    _close(process, process.by_key)
    chain, process.chain = process.chain, []
    at = next((at for at, raised in enumerate(chain) if raised.interrupted), None)
    if at is None or process.ending or len(process.found) >= _MOST_STACKS:
        return
    frames = chain[at].frames
    if at and frames and frames[-1].file.endswith(_LOGGER):
        frames = _joined(frames, chain[at - 1].frames)
    for outer in chain[at + 1 :]:
        frames = _joined(outer.frames, frames)
    if _is_whole(frames):
        process.found.append(frames)


def _joined(outer: tuple[Frame, ...], inner: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The inner frames below those that called the first of them, if they are among the outer ones."""
    first = inner[:1]
    for at in range(len(outer) - 1, -1, -1):
        if first and (outer[at].file, outer[at].function) == (first[0].file, first[0].function):
            return outer[:at] + inner
    return inner


def _is_whole(frames: Sequence[Frame]) -> bool:
    """Whether the frames are a stack of one process that may be a rank. In one process each file is run as a module once."""
    modules = [frame.file for frame in frames if frame.function == "<module>"]
    return bool(frames) and len(set(modules)) == len(modules) and not is_no_rank(frames)


def _dumped(owner: LineOwner, rank: Rank | None, process: _Interrupted, limits: Limits) -> list[DumpedProcess]:
    """The process, or the processes, with these lines. A traceback whose end was cut off counts if the key was shown before it."""
    _finish(process)
    alone = rank if owner is NOBODY else owner.rank if not owner.task else None
    apart = alone is not None or owner.local is not None or owner.process is not None
    found = process.found[-1:] if apart else process.found
    ranks = () if owner.rank is None or len(found) > 1 else (owner.rank,)
    return [
        DumpedProcess(owner.process, (Thread(MAIN, 0, frames[: limits.frames]),), ranks=ranks, local=owner.local)
        for frames in found
    ]
