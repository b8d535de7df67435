"""Reads the text of `ncclras`, the report of NCCL's RAS (2.24 to 2.30; column widths and some lines differ).

The text names odd members only: those of a class below a quarter of the communicator and never more than ten of a
class. Ranks are those inside the communicator. A class of one member is written on one line.
"""

import re
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
_ROW = re.compile(r"\s*(\d{1,9})\s+(\d{1,9})\s+\d+\s+[\d-]+\s+(\d{1,9})\s+\d+\s+[A-Z]+\s+([A-Z,]+)")
_BLOCK = re.compile(r"#(\d{1,9})-(\d{1,9}) \(([0-9a-fA-F]{1,32})\) ([A-Z,]+)")
_PROCESS = re.compile(r"\s+Process (\d{1,18}) on node (\S+) managing GPUs? (\d{1,4})(.*)")
_KIND = re.compile(r"\s+Communicator ranks have different (.+) operation counts")
_MISSING = re.compile(r"\s+The missing ranks?: ([\d,]+)")
_CLASS = re.compile(r"\s+(\d{1,9}) ranks (.+)")
_MEMBER = re.compile(r"\s+Rank (\d{1,9})(?: (.+?))? -- (.+)")
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


@dataclass(slots=True)
class _Report:
    """One report while its lines come in; `says` is what the last heading said of the members listed below it."""

    rows: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    found: dict[tuple[int, int], _Communicator] = field(default_factory=dict)
    lost: list[RasMember] = field(default_factory=list)
    inside: _Communicator | None = None
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
        if line.startswith("Communicators...") and reports[-1].known:
            reports.append(_Report())
        _take(reports[-1], line, limits)
    if not reports[-1].known:
        raise UnreadableEvidence("not the report of ncclras: no table and no block in it")
    return tuple(RasReport(tuple(_communicators(report)), tuple(report.lost)) for report in reports)


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
    elif report.inside is not None:
        _take_of_block(report, report.inside, line, limits)
    elif report.of_job is not None and (process := _PROCESS.match(line)):
        report.lost.append(_lost(report.of_job, process, limits))
    elif row := _ROW.fullmatch(line):
        report.known = True
        report.rows[int(row[1])] = int(row[2]), min(int(row[3]), MAX_RANK), row[4]


def _take_of_block(report: _Report, inside: _Communicator, line: str, limits: Limits) -> None:
    if kind := _KIND.fullmatch(line):
        report.kind, report.says = "" if kind[1] == "collective" else text_of(kind[1], limits), ""
    elif missing := _MISSING.fullmatch(line):
        for number in map(int_of, missing[1].split(",")):
            if number is not None and number <= MAX_RANK:
                inside.members.setdefault(number, _RasMember()).status = RasStatus.UNRESPONSIVE
    elif some := _CLASS.fullmatch(line):
        report.says = some[2]
        _count(inside, report.kind, report.says, int(some[1]))
    elif member := _MEMBER.fullmatch(line):
        if int(member[1]) > MAX_RANK:
            return
        if member[2]:  # the one-line form: a class of its own
            _count(inside, report.kind, member[2], 1)
        about = inside.members.setdefault(int(member[1]), _RasMember())
        _say(about, report.kind, member[2] or report.says, limits)
        if place := _PLACE.match(member[3]):
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
        members = tuple(
            RasMember(
                number, RasStatus.DEAD if about.pid is not None and (about.host, about.pid) in dead else about.status,
                about.host, about.pid, about.device, about.launched, about.error,
            )
            for number, about in sorted(found.members.items())
        )  # fmt: skip
        classes = next(iter(found.classes.values()), {})  # of several kinds of operation the first that differs
        _, size, _ = report.rows.get(group, (0, 0, ""))
        yield RasCommunicator(found.name, size, members, tuple(classes.items()))
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
