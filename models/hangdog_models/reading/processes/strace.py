"""Reads what `strace -p PID` shows: the call that each process does not return from, and whether it is stopped.

The lines are those of strace 4.5 to 6.1 (strace(1), src/strace.c and src/syscall.c): `Process 7 attached - interrupt to quit`
before 4.8, `strace: Process 7 attached with 46 threads` since 4.13. A call that returned tells nothing: it was one of many.
"""

import re
from dataclasses import dataclass

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.processes.listed_process import ListedProcess, check_processes
from hangdog_models.reading.stacks.dumped_process import lines_of
from hangdog_models.stack import ProcessState

_ATTACHED = re.compile(
    r".{0,8}?(?:strace: )?Process (\d{1,9}) attached(?: with (\d{1,6}) threads)?(?: - interrupt to quit)?"
)
#: The command, as a shell shows it above its output; old versions print nothing where standard error goes elsewhere.
_COMMAND = re.compile(r".{0,200}\bstrace\b.{0,80}? -p ?(\d{1,9})\b")
#: What may stand before a call: the thread, and the time of `-t`, `-tt`, `-ttt` or `-r`.
_CALL = re.compile(
    r"(?:\[pid +(\d{1,9})\] |(\d{1,9}) +(?=[\d.:]* ?[a-z]))?(?:\d\d:\d\d:\d\d(?:\.\d{1,9})? |\d{1,10}\.\d{1,9} )?([a-z_][a-z0-9_]{1,40})\((.*)"
)
_RESUMED = re.compile(r"(?:\[pid +(\d{1,9})\] |(\d{1,9}) +)?[\d.: ]{0,30}<\.\.\. ([a-z_][a-z0-9_]{1,40}) resumed>(.*)")
_STOPPED = re.compile(r"(?:\[pid +(\d{1,9})\] )?[\d.: ]{0,30}--- stopped by SIG(?:STOP|TSTP|TTIN|TTOU) ---")
_INTERRUPTED = re.compile(r"<\.\.\. resuming interrupted (\w{1,40}) \.\.\.>")
#: A call that came back has its result behind it. One that did not is cut off, left open, or is to be restarted: it was
#: interrupted by whoever watched it.
_RETURNED = re.compile(r"\) +=  ?(?!\?)")
#: Lines in which the first sign must stand.
_HEAD_LINES = 60


@dataclass(slots=True)
class _Seen:
    """The last thing that was seen of one thread."""

    call: str = ""
    stopped: bool = False


def recognises(head: str) -> bool:
    """Whether strace says in the first lines which process it watches."""
    lines = (line for line, _ in zip(lines_of(head), range(_HEAD_LINES), strict=False))
    return any(_ATTACHED.fullmatch(line) or _COMMAND.fullmatch(line) for line in lines)


def read(text: str, limits: Limits = DEFAULTS) -> tuple[ListedProcess, ...]:
    """The processes that were watched and hang in a call, or are stopped; raises UnreadableEvidence where none was watched."""
    watched: dict[int, _Seen] = {}
    threads = False
    last: int | None = None
    for line in lines_of(text[: limits.file_bytes]):
        if attached := _ATTACHED.fullmatch(line):
            threads = threads or attached[2] is not None
            if not threads or attached[2]:  # else a thread of the process that was attached before
                last = int(attached[1])
                watched.setdefault(last, _Seen())
        elif (command := _COMMAND.fullmatch(line)) and "attached" not in line:
            last = int(command[1])
            watched.setdefault(last, _Seen())
        elif last is not None:
            _look(line, last, watched)
        check_processes(len(watched), limits)
    if last is None:
        raise UnreadableEvidence("not an output of strace -p: no process was attached", code="damaged-process-state")
    return tuple(
        ListedProcess(
            ProcessState(pid=pid, state="T" if seen.stopped else "", syscall=text_of(seen.call, limits)), asked=True
        )
        for pid, seen in watched.items()
        if seen.call or seen.stopped
    )


def _look(line: str, last: int, watched: dict[int, _Seen]) -> None:
    """Takes what one line says of a process that is watched."""
    if stopped := _STOPPED.match(line):
        seen = watched.get(int(stopped[1] or last))
        if seen is not None:
            seen.stopped = True
    elif resumed := _RESUMED.match(line):
        seen = watched.get(int(resumed[1] or resumed[2] or last))
        if seen is not None:
            seen.call = ""
    elif call := _CALL.match(line):
        seen = watched.get(int(call[1] or call[2] or last))
        if seen is not None:
            before = _INTERRUPTED.match(call[4])
            seen.call = "" if _RETURNED.search(call[4]) else before[1] if before else call[3]
            seen.stopped = False
