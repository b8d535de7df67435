"""Reads the text of `ncclras`, the report of NCCL's RAS (2.24 to 2.30; column widths and some lines differ).

The text names odd members only: those of a class of at most a quarter of the communicator and of ten members. Ranks are
those inside the communicator. A class of one member is written on one line, whatever it has launched, so in a
communicator of two ranks each has a line of its own.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdog_models.collectives import RasCommunicator, RasMember, RasReport, RasStatus
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import MAX_RANK
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import lines_of

_HEAD = re.compile(r"^(?:Communicators\.\.\.|Job summary\s*$|#\d+-\d+ \([0-9a-fA-F]+\) [A-Z])", re.MULTILINE)
#: Group, communicators in it, nodes and ranks per node, size, ranks in the group, status, errors.
_ROW = re.compile(r"\s*(\d{1,9})\s+(\d{1,9})\s+\d+\s+[\d-]+\s+(\d{1,9})\s+\d+\s+([A-Z]+)\s+([A-Z,]+)")
#: Of the job's summary: the numbers below a heading, and the nodes that have more or fewer processes than most.
_NUMBERS = re.compile(r"\s*\d{1,9}(?:\s+\d{1,9}){2,4}\s*")
_NODE = re.compile(r"\s+Node (\S+) running process(?:es)? (\d{1,18}(?:,\d{1,18})*),?")
_BLOCK = re.compile(r"#(\d{1,9})-(\d{1,9}) \(([0-9a-fA-F]{1,32})\) ([A-Z,]+)")
_PROCESS = re.compile(r"\s+Process (\d{1,18}) on node (\S+) managing GPUs? (\d{1,4})(.*)")
_KIND = re.compile(r"\s*Communicator ranks have different (.+) operation counts")
_MISSING = re.compile(r"\s+The missing ranks?: ([\d,]+)")
_CLASS = re.compile(r"\s*(\d{1,9}) ranks (.+)")
#: What the member does stands there only where it is a class of its own; who quotes a report may cut its place off.
_MEMBER = re.compile(r"\s*Rank (\d{1,18})(?: ((?:has|reported) .+?))?(?: -- (.+))?")
_PLACE = re.compile(r"GPU (\d{1,4})(?: \(NVML (\d{1,4})\))? managed by process (\d{1,18}) on node (\S+)")
_NVML = re.compile(r"\(NVML (\d{1,4})")
#: What a class or a single member does; NCCL writes the verb in the plural for a class.
_STATUS = re.compile(r"ha(?:ve|s) status ([A-Z]+)")
_LAUNCHED = re.compile(r"ha(?:ve|s) launched up to operation (\d{1,20})")
_NOTHING = re.compile(r"ha(?:ve|s) not launched any operation")
_REPORTED = re.compile(r"reported (.+)")
#: The report's words for a status; a member that says it belongs to no such communicator is as good as unknown.
_STATUSES = {status.value.upper(): status for status in RasStatus} | {"NOCOMM": RasStatus.UNKNOWN}
#: Communicators without a fault that are listed by size only; a job of 100,000 GPUs has some tens of thousands.
_MOST_SOUND = 1 << 16
#: Nodes that run more or fewer processes than others: RAS names ten of a kind, `-v` fewer than half of them.
_MOST_NODES = 1 << 16
#: The numbers in a summary's table of nodes that are alike, and in its table of all nodes.
_ALIKE, _OF_ALL = 5, 3


@dataclass(slots=True)
class _RasMember:
    status: RasStatus = RasStatus.RUNNING
    host: str = ""
    pid: int | None = None
    device: int | None = None
    launched: dict[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class _Communicator:
    name: str
    members: dict[int, _RasMember] = field(default_factory=dict)
    classes: dict[str, dict[int, int]] = field(default_factory=dict)
    differs: bool = False


@dataclass(slots=True)
class _Report:
    """One report while its lines come in; `says` is what the last heading said of the members listed below it."""

    rows: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    heading: str = ""
    gpus: int = 0
    processes: dict[str, int] = field(default_factory=dict)
    impossible: str = ""
    found: dict[tuple[int, int], _Communicator] = field(default_factory=dict)
    lost: list[RasMember] = field(default_factory=list)
    inside: _Communicator | None = None
    differs: bool = False
    of_job: RasStatus | None = None
    kind: str = ""
    says: str = ""
    known: bool = False


def recognises(head: str) -> bool:
    """Whether a text holds a heading of the report."""
    return _HEAD.search(head) is not None


def read(text: str, limits: Limits = DEFAULTS) -> tuple[RasReport, ...]:
    """The reports of a text, in its order (a loop may have appended several); raises UnreadableEvidence."""
    reports = [_Report()]
    for line in lines_of(text):
        if line.startswith(("Communicators...", "Job summary")) and reports[-1].known:
            reports.append(_Report())
        _take(reports[-1], line, limits)
    known = [report for report in reports if report.known]
    if not known:
        raise UnreadableEvidence("not the report of ncclras: no table and no block in it", code="damaged-nccl-report")
    return tuple(map(_written, known))


def _written(report: _Report) -> RasReport:
    communicators = tuple(_communicators(report))
    listed = Counter(group for (group, _), one in report.found.items() if one.differs)
    untold = sum(
        max(0, min(count, _MOST_SOUND) - listed[group])
        for group, (count, _, errors) in report.rows.items()
        if "MISMATCH" in errors
    )
    impossible = report.impossible or next(
        (
            f"rank {member.number} of {one.size}"
            for one in communicators
            for member in one.members
            if 0 < one.size <= member.number
        ),
        "",
    )
    lost = tuple(report.lost)
    return RasReport(communicators, lost, None, report.gpus, report.processes, untold, impossible)


def _take(report: _Report, line: str, limits: Limits) -> None:
    if line.startswith("Communicators..."):
        report.known = True
    elif line in ("INCOMPLETE", "DEAD"):
        report.inside, report.of_job = None, RasStatus.DEAD if line == "DEAD" else RasStatus.UNRESPONSIVE
    elif block := _BLOCK.match(line):
        at = int(block[1]), int(block[2])
        report.inside = report.found.setdefault(at, _Communicator(block[3].lower().removeprefix("0x").zfill(16)))
        report.known, report.of_job, report.kind = True, None, ""
        report.says = "is missing" if "INCOMPLETE" in block[4] else ""
        report.differs = "MISMATCH" in block[4]
    elif report.inside is not None:
        _take_of_block(report, report.inside, line, limits)
    elif report.of_job is not None and (process := _PROCESS.match(line)):
        report.lost.append(_lost(report.of_job, process, limits))
    elif row := _ROW.fullmatch(line):
        report.known = True
        report.rows[int(row[1])] = int(row[2]), min(int(row[3]), MAX_RANK), row[5]
        if row[4] == "NOCOMM" or not int(row[3]):  # a communicator is known by a rank of it
            report.impossible = f"a communicator of {row[3]} ranks, none of which knows it"
    elif not report.known:
        _take_of_summary(report, line, limits)


def _take_of_summary(report: _Report, line: str, limits: Limits) -> None:
    """The job's summary: one table where all nodes are alike, else a table of nodes and one of all."""
    if "(total)" in line or "per node" in line:
        report.heading = " ".join(line.split())
    elif node := _NODE.match(line):
        if len(report.processes) < _MOST_NODES:  # of several nodes NCCL lists the processes of one for all
            report.processes[text_of(node[1], limits)] = node[2].count(",") + 1
    elif report.heading and _NUMBERS.fullmatch(line):
        numbers = [int(number) for number in line.split()]
        if report.heading.startswith("per node"):
            report.processes.setdefault("", numbers[1])  # the most frequent number stands first
        elif report.heading == "(total) per node per process (total) (total)" and len(numbers) == _ALIKE:
            report.processes.setdefault("", numbers[1])
            report.gpus = min(numbers[4], MAX_RANK)
        elif report.heading == "(total) (total) (total)" and len(numbers) == _OF_ALL:
            report.gpus = min(numbers[2], MAX_RANK)


def _take_of_block(report: _Report, inside: _Communicator, line: str, limits: Limits) -> None:
    if kind := _KIND.fullmatch(line):
        report.kind, report.says = "" if kind[1] == "collective" else text_of(kind[1], limits), ""
    elif missing := _MISSING.fullmatch(line):
        for number in map(int_of, missing[1].split(",")):
            if number is not None and number <= MAX_RANK:
                inside.members.setdefault(number, _RasMember()).status = RasStatus.UNRESPONSIVE
    elif some := _CLASS.fullmatch(line):
        report.says = some[2]
        inside.differs |= report.differs
        _count(inside, report.kind, report.says, int(some[1]))
    elif (member := _MEMBER.fullmatch(line)) and (member[2] or member[3]):
        if int(member[1]) > MAX_RANK:
            report.impossible = f"rank {member[1]}"
            return
        inside.differs |= report.differs
        if member[2]:  # the one-line form: a class of its own
            _count(inside, report.kind, member[2], 1)
        about = inside.members.setdefault(int(member[1]), _RasMember())
        _say(about, report.kind, member[2] or report.says, limits)
        if place := _PLACE.match(member[3] or ""):
            about.device, about.pid = int(place[2] or place[1]), int(place[3])
            about.host = text_of(place[4], limits)
    elif not line.startswith(" "):
        report.inside = None


def _launched(says: str) -> int | None:
    if _NOTHING.match(says):
        return 0
    number = _LAUNCHED.match(says)
    return int_of(number[1]) if number else None


def _count(inside: _Communicator, kind: str, says: str, members: int) -> None:
    number = _launched(says)
    if number is not None:
        inside.classes.setdefault(kind, {})[number] = members


def _say(about: _RasMember, kind: str, says: str, limits: Limits) -> None:
    number = _launched(says)
    if number is not None:
        about.launched[kind] = number
    elif says == "is missing":
        about.status = RasStatus.UNRESPONSIVE
    elif status := _STATUS.match(says):
        about.status = _STATUSES.get(status[1], RasStatus.UNKNOWN)
    elif reported := _REPORTED.match(says):
        about.status, about.error = RasStatus.ERROR, text_of(reported[1], limits)


def _lost(status: RasStatus, process: re.Match[str], limits: Limits) -> RasMember:
    """A process without an answer; its device where it manages one only. It has no rank of its own: -1."""
    nvml = _NVML.search(process[4])
    one = "," not in process[4]
    device = int(nvml[1] if nvml else process[3]) if one else None
    return RasMember(-1, status, text_of(process[2], limits), int(process[1]), device)


def _communicators(report: _Report) -> Iterator[RasCommunicator]:
    dead = {(member.host, member.pid) for member in report.lost if member.status is RasStatus.DEAD}
    for (group, _), found in report.found.items():
        _join(found, report.lost)
        # of several kinds of operation the one in which they are farthest apart, else the first
        kind = max(found.classes, key=lambda one: max(found.classes[one]) - min(found.classes[one]), default="")
        members = tuple(
            RasMember(
                number, RasStatus.DEAD if about.pid is not None and (about.host, about.pid) in dead else about.status,
                about.host, about.pid, about.device,
                {kind: about.launched[kind]} if kind in about.launched else {}, about.error,
            )
            for number, about in sorted(found.members.items())
        )  # fmt: skip
        classes = found.classes.get(kind, {})
        _, size, _ = report.rows.get(group, (0, 0, ""))
        yield RasCommunicator(found.name, size, members, tuple(classes.items()), kind)
    sound = 0
    for group, (count, size, errors) in report.rows.items():
        for number in range(min(count, _MOST_SOUND - sound) if errors == "OK" else 0):
            sound += 1
            yield RasCommunicator(f"#{group}-{number}", size)


def _join(found: _Communicator, lost: list[RasMember]) -> None:
    """The place of a missing rank, which versions before 2.28 do not write beside it: one process, one rank."""
    missing = [about for about in found.members.values() if about.status is RasStatus.UNRESPONSIVE]
    if len(missing) == 1 == len(lost) and missing[0].pid is None:
        missing[0].host, missing[0].pid, missing[0].device = lost[0].host, lost[0].pid, lost[0].device
