"""Reads what Slurm's commands print: `scontrol show node` and `job`, `sinfo`, also with -R, and `sacct`; a table says what a reason means."""

import re
from collections.abc import Iterator
from itertools import pairwise

from hangdog_models.findings import SLURM, Finding
from hangdog_models.reading.dates import moment
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.logs import log_table
from hangdog_models.reading.logs.log_process import SOURCE
from hangdog_models.reading.printable import printable

_NODE = re.compile(r"^NodeName=(\S{1,253})", re.MULTILINE)
_STATE = re.compile(r"\bState=(\S{1,200})")
_REASON = re.compile(r"\bReason=(.{1,400}?)(?: \[\S{1,64}@(\S{1,40})\])?\s{0,8}$", re.MULTILINE)
_DOWN = re.compile(r"DOWN|DRAIN|FAIL|NOT_RESPONDING|ERROR|\*")
_REASONS = re.compile(r"^REASON\s{1,80}USER\s{1,40}TIMESTAMP\s{1,40}NODELIST\s{0,40}$", re.MULTILINE)
_ROW = re.compile(
    r"^(\S.{0,120}?)\s{1,80}(\S{1,40})\s{1,40}(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown)\s{1,40}(\S{1,400})\s{0,8}$"
)
#: `sinfo` alone: a row for each partition and state, in which `*` marks machines that do not answer.
_PARTITIONS = re.compile(
    r"^PARTITION\s{1,40}AVAIL\s{1,40}TIMELIMIT\s{1,40}NODES\s{1,40}STATE\s{1,40}NODELIST\s{0,40}$", re.MULTILINE
)
_PARTITION_ROW = re.compile(
    r"^\S{1,64}\s{1,40}[a-z]{2,8}\s{1,40}\S{1,24}\s{1,40}\d{1,7}\s{1,40}([a-z]{2,12}\*)\s{1,40}(\S{1,400})\s{0,8}$"
)
#: `sinfo -lNe`: a row for each machine, whose last column is the reason.
_MACHINES = re.compile(
    r"^NODELIST\s{1,80}NODES\s{1,40}PARTITION\s{1,80}STATE\b[^\n]{0,300}\bREASON\s{0,40}$", re.MULTILINE
)
_MACHINE_ROW = re.compile(
    r"^(\S{1,253})\s{1,80}\d{1,7}\s{1,40}\S{1,64}\s{1,80}([a-z]{2,16}[^\sa-z]{0,4})\s{1,40}\d{1,7}\s{1,40}\d{1,4}:\d{1,4}:\d{1,4}(?:\s{1,40}\S{1,200}){4}\s{1,40}(\S.{0,200}?)\s{0,8}$"
)
#: States of a machine that is out of service, as sinfo writes them.
_OUT = re.compile(r"down|drain|drng|fail|inval|.*\*")
_JOBS = re.compile(r"^\s{0,8}JobID\b[^\n]{0,400}\bState\b[^\n]{0,400}$", re.MULTILINE)
_JOB_STATE = re.compile(
    r"^\s{0,8}\d{1,12}\S{0,40}[\s|].{0,600}?\b(NODE_FAIL|OUT_OF_ME\w{0,8}|TIMEOUT|PREEMPTED|REQUEUED)\b"
)
#: `scontrol show job`: a block for each job, also in one line (`-o`). How it ended, and the machines that it had.
_JOB = re.compile(r"(?:^|(?<=[\s>#$]))JobId=\d{1,12} .{0,20}?JobName=\S", re.MULTILINE)
_ENDED = re.compile(r"\bJobState=(\w{1,20})\b")
_HAD = re.compile(r"(?<![A-Za-z])NodeList=(\S{1,4000})")
_HOST = re.compile(r"[A-Za-z][\w.-]{0,252}(?:\[\d{1,9}\])?")
_RANGES = re.compile(r"([^\[\],]{0,200})\[([\d,-]{1,400})\]([^\[\],]{0,100})")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)")
#: Machines of one list, and nodes and lines of one text, that are read; a block of a node has some twenty lines.
_HOSTS, _LINES, _BLOCK = 1_024, 200_000, 6_000


def recognises(text: str) -> bool:
    """Whether a text is what one of the commands prints; to be asked of its head."""
    return any(pattern.search(text) for pattern in (_NODE, _REASONS, _PARTITIONS, _MACHINES, _JOBS, _JOB))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of a text, one for each machine, or for each state of the job."""
    text = text[: limits.file_bytes]
    found: dict[tuple[str, str], Finding] = {}
    for finding in (
        *_nodes(text),
        *_reasons(text),
        *_machines(text),
        *_partitions(text),
        *_jobs(text),
        *_shown_jobs(text),
    ):
        found.setdefault((finding.machine, finding.code), finding)
    return tuple(found.values())


def _nodes(text: str) -> Iterator[Finding]:
    starts = [one for one, _ in zip(_NODE.finditer(text), range(_LINES), strict=False)]
    for number, start in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        block = text[start.start() : min(end, start.start() + _BLOCK)]
        state = _STATE.search(block)
        if state is not None and _DOWN.search(state[1]):
            reason = _REASON.search(block)
            yield from _of_node(start[1], state[1], reason[1] if reason else "", (reason[2] or "") if reason else "")


def _reasons(text: str) -> Iterator[Finding]:
    header = _REASONS.search(text)
    if header is None:
        return
    for line, _ in zip(text[header.end() :].splitlines(), range(_LINES), strict=False):
        if row := _ROW.match(line[:1_000]):
            for host in hosts_in(row[4]):
                yield from _of_node(host, "DOWN", row[1], row[3])


def _machines(text: str) -> Iterator[Finding]:
    header = _MACHINES.search(text)
    if header is None:
        return
    for line, _ in zip(text[header.end() :].splitlines(), range(_LINES), strict=False):
        row = _MACHINE_ROW.match(line[:1_000])
        if row and _OUT.match(row[2]):
            yield from _of_node(row[1], row[2].upper(), "" if row[3] == "none" else row[3], "")


def _partitions(text: str) -> Iterator[Finding]:
    """Machines that do not answer; without a reason no other state tells a fault."""
    header = _PARTITIONS.search(text)
    if header is None:
        return
    for line, _ in zip(text[header.end() :].splitlines(), range(_LINES), strict=False):
        if row := _PARTITION_ROW.match(line[:1_000]):
            for host in hosts_in(row[2]):
                yield from _of_node(host, row[1].upper(), "", "")


def _of_node(host: str, state: str, reason: str, at: str) -> Iterator[Finding]:
    return finding_of(host, state, reason, _moment(at))


def finding_of(host: str, state: str, reason: str, at_s: float | None) -> Iterator[Finding]:
    """What a machine's state and the reason for it mean, by the table; nothing where it knows neither."""
    known = log_table.cluster().find(f"node State={state[:80]} Reason={reason}")
    if known is not None:
        words = printable(f"{state[:80]}, {reason}" if reason else state[:80], 200)
        what = f'{known[0].what} ("{words}")'
        yield Finding(SLURM, known[0].code, known[0].impact, what, printable(host, 253), at_s=at_s)


def _jobs(text: str) -> Iterator[Finding]:
    header = _JOBS.search(text)
    if header is None:
        return
    for line, _ in zip(text[header.end() :].splitlines(), range(_LINES), strict=False):
        state = _JOB_STATE.match(line[:1_000])
        if state and state[1] == "NODE_FAIL" and (host := _only_host(header[0], line)):
            yield from finding_of(host, "DOWN", "Node failure", None)
            continue
        known = log_table.cluster().find(f"job {state[1]}") if state else None
        if known is not None:
            yield Finding(SOURCE, known[0].code, known[0].impact, known[0].what)


def _shown_jobs(text: str) -> Iterator[Finding]:
    """How each job of `scontrol show job` ended; a machine that failed is named if the job had no other."""
    starts = [one.start() for one, _ in zip(_JOB.finditer(text), range(_LINES), strict=False)]
    for start, end in pairwise([*starts, len(text)]):
        block = text[start : min(end, start + _BLOCK)]
        state, had = _ENDED.search(block), _HAD.search(block)
        hosts = hosts_in(had[1]) if had else []
        if state and state[1] == "NODE_FAIL" and len(hosts) == 1 and hosts[0] != "(null)":
            yield from finding_of(hosts[0], "DOWN", "Node failure", None)
        elif state and (known := log_table.cluster().find(f"job {state[1]}")) is not None:
            yield Finding(SOURCE, known[0].code, known[0].impact, known[0].what)


def _only_host(header: str, row: str) -> str:
    """The one machine that a job had, if the last column lists it whole: it is the one that failed. A `+` marks what is cut."""
    listed = row[:1_000].replace("|", " ").split()[-1]
    lists = header.replace("|", " ").rstrip().endswith("NodeList") and not listed.endswith("+")
    hosts = hosts_in(listed) if lists and _HOST.fullmatch(listed) else []
    return hosts[0] if len(hosts) == 1 else ""


def hosts_in(text: str) -> list[str]:
    """The hosts in `gpu-3`, `gpu-[3-5,9]` and `a-[01-02],b`, the first thousand of them."""
    hosts: list[str] = []
    rest = text
    for listed in _RANGES.finditer(text):
        rest = rest.replace(listed[0], "", 1)
        for part in listed[2].split(","):
            first, _, last = part.partition("-")
            if not first.isdigit() or not (last or first).isdigit() or len(first) > 9 or len(last) > 9:
                continue
            numbers = range(int(first), min(int(last or first), int(first) + _HOSTS) + 1)
            hosts += [f"{listed[1]}{number:0{len(first)}d}{listed[3]}" for number in numbers]
            if len(hosts) > _HOSTS:
                return hosts[:_HOSTS]
    return [*hosts, *(host for host in rest.split(",") if host and "[" not in host)][:_HOSTS]


def _moment(text: str) -> float | None:
    found = _ISO.match(text)
    return moment(int(found[1]), int(found[2]), *found.group(3, 4, 5, 6)) if found else None
