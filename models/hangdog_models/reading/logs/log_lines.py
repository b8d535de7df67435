"""Takes a training log apart into lines with whose they are, whatever a launcher or a terminal glued to them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.dates import last_lines, moment

#: Characters of a line that are looked at: the longest line that says something has about 1,000.
_LONGEST = 1 << 13
_LINE = re.compile(r"[^\r\n]+")  # a progress bar ends its line with \r
_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")
#: PyTorch's own prefix (`[rank3]:`, Lightning's `[rank: 3]`, Determined's `[rank=3] ||`) holds the global rank, torchrun's the local one. Open MPI
#: (`[1,3]<stderr>:`) and horovodrun (`[3]<stderr>:`) write the global one, too.
_WHOSE = re.compile(
    r"\[(?:rank(?:: |=)?(\d{1,7})|(?:default|trainer|worker)(\d{1,4}))\](?: \|\|)?:? ?|\[(?:\d{1,9},)?(\d{1,7})\]<std(?:out|err|diag)>: ?"
)
_RAY = re.compile(r"\s{0,8}\([A-Za-z_][\w.<>:]{0,200} pid=(\d{1,18})(?:, ip=([\w.:]{1,64}))?\) ?")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d{1,9})? ?(Z|[+-]\d\d:?\d\d)")
#: The host before NCCL's own lines (`node-2:5776:5902 [0] … NCCL WARN`), and before what srun says of its tasks.
_NCCL = re.compile(r"(?:\[[\d :.-]{1,32}\] )?([A-Za-z0-9][\w.-]{0,252}):\d{1,10}:\d{1,10} \[-?\d{1,4}\] .{0,128}?NCCL ")
_SRUN = re.compile(r"(?:\d{1,7}: )?srun: error: ([A-Za-z0-9][\w.-]{0,252}): tasks? \d")
#: The prefix of vLLM's logger, under which it prints whole tracebacks.
_LOGGER = re.compile(r"(?:INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]{1,64}:\d{1,6}\] ?")
#: What is put behind a machine's name for its InfiniBand interface.
_OF_INTERFACE = re.compile(r"-(?:ib|hsn|opa)\d{0,2}$")
#: What a container's runtime writes before each line (CRI): its time, and the stream.
_CONTAINER = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d{1,9})?(Z|[+-]\d\d:\d\d) std(?:out|err) F ")
#: Characters at the start of a line within which a time stamp stands.
_STAMPED = 64


_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,]\d{1,9})?(?: ?(Z|[+-]\d\d:?\d\d))?")


@dataclass(frozen=True, slots=True)
class LogLine:
    """What stands behind the prefixes. `rank` is the global rank, `local` the rank on its machine, `process` a process id.

    None: no prefix tells it. `at_s` is Unix time, known only where the stamp says its zone. `host` is whom NCCL's or
    srun's prefix names; empty elsewhere. `address` is that of the machine, which Ray's prefix names.
    """

    text: str
    rank: Rank | None = None
    local: int | None = None
    process: int | None = None
    at_s: float | None = None
    host: str = ""
    address: str = ""


def end(text: str) -> float | None:
    """Unix time of the last date in the last lines, of one without a zone as if it were UTC; None where there is none."""
    at_s = None
    for line in last_lines(text):
        if date := _DATE.search(line, 0, _STAMPED):
            moment_s = moment(int(date[1]), int(date[2]), date[3], date[4], date[5], date[6], date[7])
            at_s = at_s if moment_s is None else moment_s
    return at_s


def lines_of_log(text: str) -> Iterator[LogLine]:
    """The lines in their order; a line in which a second rank's prefix stands is two."""
    for found in _LINE.finditer(text):
        line = found[0][:_LONGEST]
        if "\x1b" in line:
            line = _ESCAPE.sub("", line)
        at_s = _seconds(line) if line[:1].isdigit() or "Z" in line[:_STAMPED] else None
        if line[:1].isdigit() and (runtime := _CONTAINER.match(line)):
            line = line[runtime.end() :]
        ray = _RAY.match(line)
        process, address = (int(ray[1]), ray[2] or "") if ray else (None, "")
        line = line[ray.end() :] if ray else line
        if line[:1] in "IWEC" and (logger := _LOGGER.match(line)):
            line = line[logger.end() :]
        if "[" not in line:
            yield LogLine(line, process=process, at_s=at_s, host=_host(line), address=address)
            continue
        rank, local, begin = None, None, 0
        for whose in _WHOSE.finditer(line):
            if whose.start() > begin:
                part = line[begin : whose.start()]
                yield LogLine(part, rank, local, process, at_s, _host(part), address)
                rank = local = None
            number = whose[1] or whose[3]
            rank, local, begin = (
                _rank(number) if number else rank,
                int(whose[2]) if whose[2] else local,
                whose.end(),
            )
        if begin < len(line):
            yield LogLine(line[begin:], rank, local, process, at_s, _host(line[begin:]), address)


def _host(line: str) -> str:
    found = (_NCCL.match(line) if "NCCL " in line else None) or (_SRUN.match(line) if "srun: " in line else None)
    return found[1] if found else ""


def is_same_host(name: str, host: str) -> bool:
    """Whether two names are those of one machine: alike before the first dot, but for the name of its InfiniBand interface."""
    first, second = (_OF_INTERFACE.sub("", one.partition(".")[0].lower()) for one in (name, host))
    return bool(first) and first == second and not first.isdigit()


def _rank(digits: str) -> Rank | None:
    return Rank(int(digits)) if int(digits) <= MAX_RANK else None


def _seconds(line: str) -> float | None:
    stamp = _STAMP.search(line, 0, _STAMPED)
    if stamp is None:
        return None
    try:
        return datetime.fromisoformat(stamp[1] + stamp[2]).timestamp()
    except (ValueError, OverflowError):
        return None
