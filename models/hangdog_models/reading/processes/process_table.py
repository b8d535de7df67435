"""Reads tables of processes: `ps aux`, `ps -elf`, `ps -eo pid,stat,wchan:32,cmd`, `ps -L`, `top`.

Their headers name the columns, so any choice of them is read that has a process id, a state and, last, a command. The
forms are those of procps-ng 3.3 and 4.0 and of busybox 1.36 (ps(1), top(1); src/ps/output.c in procps-ng).
"""

import re
from collections.abc import Iterator, Sequence

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.processes.listed_process import ListedProcess, check_processes, listed
from hangdog_models.reading.stacks.dumped_process import lines_of
from hangdog_models.stack import ProcessState

#: Names of the columns that are used; ps prints `SPID`, `LWP` or `TID` for threads, and names a column as it was asked to.
_PID, _STATE, _PARENT, _WCHAN = ("PID", "TGID"), ("STAT", "S", "STATE"), ("PPID",), ("WCHAN", "WIDE-WCHAN-COLUMN")
_THREAD = ("SPID", "LWP", "TID")
_COMMAND = ("COMMAND", "CMD", "ARGS", "UCMD")
#: All columns that ps and top print by their usual options: a header has no other words.
_COLUMNS = frozenset(
    (
        *_PID, *_STATE, *_PARENT, *_WCHAN, *_THREAD, *_COMMAND,
        *("USER", "UID", "RUSER", "EUSER", "GROUP", "F", "C", "%CPU", "CPU", "%MEM", "MEM", "VSZ", "RSS", "SZ", "TTY", "TT", "STARTED"),
        *("START", "STIME", "ELAPSED", "TIME", "TIME+", "PRI", "NI", "PR", "ADDR", "NLWP", "THCNT", "PSR", "CLS", "RTPRIO", "PGID"),
        *("PGRP", "SID", "SESS", "TPGID", "VIRT", "RES", "SHR", "NICE", "WCPU", "MINFL", "MAJFL", "PENDING", "BLOCKED", "IGNORED"),
        *("CAUGHT", "SWAP", "CODE", "DATA", "UNIT", "CGROUP", "LABEL", "NUMA", "P", "nTH", "UTIME", "NSPID", "HOST", "VSZRW"),
    )
)  # fmt: skip
_STATES = re.compile(r"([RSDTtZXxKWPI])[<NLslE+]{0,6}")
#: A date of `lstart`, or one of `start` that lies days back: they hold spaces.
_DATES = re.compile(r"(?:[A-Z][a-z]{2} +)?[A-Z][a-z]{2} +\d{1,2}(?: +\d\d:\d\d:\d\d +\d{4})?(?= )")
#: What draws the tree in front of a command, with `f` and `--forest`.
_TREE = re.compile(r"[\s|`-]{0,400}\\_ ")
_DEFUNCT = re.compile(r"\[?([^\s\[\]]{1,64})\]? <defunct>")
#: Characters in which a header must begin; lines after a header that are no row, until the table has ended.
_HEAD, _FOREIGN = 1 << 15, 200
#: A wait channel of none: the process runs, has no channel, or has several threads.
_NOWHERE = frozenset(("-", "0", "*", "?"))


def recognises(head: str) -> bool:
    """Whether a text that begins like this holds the header of such a table."""
    return any(_header(line) for line in lines_of(head[:_HEAD]))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[ListedProcess, ...]:
    """The processes of all tables of a text, each as it is last shown; raises UnreadableEvidence where there is no table."""
    columns: Sequence[str] = ()
    found: dict[int, ListedProcess] = {}
    tables = foreign = 0
    for line in lines_of(text[: limits.file_bytes]):
        if header := _header(line):
            columns, foreign, tables = header, 0, tables + 1
        elif columns:
            row = _row(line, columns, limits)
            if row is not None:
                found[row.state.pid] = row
                check_processes(len(found), limits)
            foreign = 0 if row is not None else foreign + 1
            columns = columns if foreign < _FOREIGN else ()
    if not tables:
        raise UnreadableEvidence(
            "not a table of processes: no header with PID and STAT in it", code="damaged-process-state"
        )
    return tuple(found.values())


def _header(line: str) -> list[str]:
    """The columns that a header names, in order; empty for any other line."""
    if len(line) > 400 or ("PID" not in line and "TGID" not in line):
        return []
    words = line.split()
    known = all(word in _COLUMNS for word in words) and words[-1] in (*_COMMAND, *_WCHAN)
    return words if known and _at(words, _PID) is not None and _at(words, _STATE) is not None else []


def _at(columns: Sequence[str], names: Sequence[str]) -> int | None:
    return next((columns.index(name) for name in names if name in columns), None)


def _row(line: str, columns: Sequence[str], limits: Limits) -> ListedProcess | None:
    """One process; None for a line that is none, and for a thread that is not the first of its process."""
    cells = list(_cells(line, columns))
    if len(cells) < len(columns) - 1:
        return None
    cells += [""] * (len(columns) - len(cells))
    pid, state = _number(_cell(cells, columns, _PID)), _STATES.fullmatch(_cell(cells, columns, _STATE))
    thread = _cell(cells, columns, _THREAD)
    if not pid or state is None or (thread and _number(thread) != pid):
        return None
    wchan, command = _cell(cells, columns, _WCHAN), cells[-1] if columns[-1] in _COMMAND else ""
    command = _TREE.sub("", command, count=1)
    ended = _DEFUNCT.match(command)
    return listed(
        ProcessState(
            pid=pid,
            state=state[1],
            wchan="" if wchan in _NOWHERE else text_of(wchan, limits),
            comm=text_of(ended[1], limits) if ended else "",
            cmdline="" if ended else text_of(command, limits),
        ),
        _number(_cell(cells, columns, _PARENT)),
    )


def _cells(line: str, columns: Sequence[str]) -> Iterator[str]:
    """What stands below each column, the last with all that is left of the line."""
    rest = line.lstrip()
    for column in columns[:-1]:
        date = _DATES.match(rest) if column in ("STARTED", "START", "STIME") else None
        cell, _, rest = (date[0], "", rest[date.end() :]) if date else rest.partition(" ")
        rest = rest.lstrip()
        if not cell:
            return
        yield cell
    yield rest if columns[-1] in _COMMAND else rest.partition(" ")[0]


def _cell(cells: Sequence[str], columns: Sequence[str], names: Sequence[str]) -> str:
    at = _at(columns, names)
    return cells[at] if at is not None else ""


def _number(digits: str) -> int | None:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None
