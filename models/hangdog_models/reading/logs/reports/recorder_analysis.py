"""Reads what PyTorch's analysis of flight recorder dumps prints (`torchfrtrace`, the pages of its debug server).

It names ranks that are missing in a collective outright, by their global numbers. Of a mismatch it names ranks, too, but
its source says that the rank that it compares with may be the odd one: those numbers count for nothing here.
"""

import re
from dataclasses import dataclass, field

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.json_document import int_of
from hangdog_models.reading.logs.desync import ranks_in
from hangdog_models.reading.logs.log_counters import LogCounters
from hangdog_models.reading.printable import printable

CODE = "flight recorder analysis"
_OPENS = "Not all ranks joining collective"
_AT = re.compile(r"Not all ranks joining collective(?:[,:] sequence number:)? ?(\d{1,20})")
_MISSING = re.compile(r"[Mm]issing ranks(?::| are) \{([\d, ]{1,6000})\}")
_ABOUT = re.compile(r"\s{0,8}(group info|collective|expected ranks): \{?(.{1,6000})")
_MISMATCH = re.compile(r"Error type: (?:COLLECTIVE_TYPE|SIZE_OR_SYNTAX|COLLECTIVE_DTYPE)_MISMATCH")
_NUMBERS = "Input/output mismatch in the collective sequence number"
_COLUMN, _CALLS = "missing_ranks", "global_rank"
_CELL = re.compile(r"\{([\d, ]{1,6000})\}")
_CALL = re.compile(r"\s{0,20}\d{1,9}\s{1,40}(?:\d{1,9}\s{1,40})?(\S{1,128})\s{1,40}(\d{1,7})\s{1,40}\w{1,20}:\w")
#: A row, or the line under the header.
_ROW = re.compile(r"\s{0,20}(?:\d{1,9}\s|-{2,40}\s)")
#: Lines from the sentence to the expected ranks.
_SPAN = 10
#: Rows of a table that are looked at.
_ROWS = 1 << 16
#: Collectives that are kept: the first one of a group that lacks ranks tells why the later ones do.
_MOST = 16


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A collective that ranks are missing in; `sequence` is -1 where it is not told."""

    name: str
    sequence: int
    missing: tuple[Rank, ...]


@dataclass(slots=True)
class RecorderAnalysis:
    """The first incomplete collective of each group, and the members of groups. `lines`, `rows` of it are to come."""

    incomplete: dict[str, Incomplete] = field(default_factory=dict)
    members: dict[str, set[Rank]] = field(default_factory=dict)
    mismatched: bool = False
    lines: int = 0
    rows: int = 0
    column: int = 0
    about: dict[str, str] = field(default_factory=dict)

    def take(self, line: str) -> bool:
        """Notes a line; true if it belongs to such a report."""
        if _OPENS in line:
            at = _AT.search(line)
            self.lines, self.about = _SPAN, {"number": at[1]} if at else {}
        elif self.lines:
            self.lines -= 1
        elif "group_id" in line and (_COLUMN in line or _CALLS in line):
            self.rows, self.column = _ROWS, max(0, line.find(_COLUMN))
            return True
        if self.lines:
            self._take_report(line)
            return True
        self.rows = self.rows - 1 if self.rows and _ROW.match(line) else 0
        if self.rows and self._is_row(line):
            return True
        differs = _NUMBERS in line or _MISMATCH.search(line) is not None
        self.mismatched = self.mismatched or differs
        return differs

    def _take_report(self, line: str) -> None:
        group = self.about.get("group info", "")
        if found := _MISSING.search(line):
            self._keep(group, self.about.get("collective", ""), self.about.get("number"), found[1])
        elif found := _ABOUT.match(line):
            self.about[found[1]] = found[2].strip()
            if found[1] == "expected ranks" and found[2].endswith("}"):
                self._add_members(group, ranks_in(found[2].rstrip("}")))
                self.lines = 0

    def _is_row(self, line: str) -> bool:
        """Notes a row of the table of collectives (number, group, whether it passed, number, name) or of that of calls."""
        if self.column and (found := _CELL.match(line, self.column)):
            cells = line[: self.column].split()
            if len(cells) >= 5 and cells[2] in ("True", "False"):
                self._keep(cells[1], cells[4], cells[3], found[1])
            return True
        call = None if self.column else _CALL.match(line)
        if call is not None:
            self._add_members(call[1], ranks_in(call[2]))
        return call is not None

    def _keep(self, group: str, name: str, number: str | None, numbers: str) -> None:
        if len(self.incomplete) < _MOST:
            sequence = int_of(number)
            what = Incomplete(name, -1 if sequence is None else sequence, ranks_in(numbers))
            self.incomplete.setdefault(group, what)

    def _add_members(self, group: str, ranks: tuple[Rank, ...]) -> None:
        if group in self.members or len(self.members) < _MOST:
            self.members.setdefault(group, set()).update(ranks)

    def findings(self, source: str) -> list[Finding]:
        """The ranks that are missing in the first collective of each group, and whether ranks ran different ones."""
        found = [
            Finding(source, CODE, Impact.VICTIM, _sentence(one, group), ranks=one.missing)
            for group, one in self.incomplete.items()
        ]
        if self.mismatched:
            what = (
                "the analysis of flight recorder dumps finds different collectives, sizes or types at the same number"
            )
            found.append(Finding(source, "mismatched collectives", Impact.PROGRAM, what))
        return found

    def positions(self, source: str) -> dict[Rank, LogCounters]:
        """How far the members of each group have come: those that are missing not to the collective they lack."""
        found: dict[Rank, LogCounters] = {}
        for group, one in self.incomplete.items():
            for rank in sorted(self.members.get(group, ())) if one.sequence >= 0 else ():
                counted = found.setdefault(rank, LogCounters(source))
                counted.enqueued[group] = one.sequence - (rank in one.missing)
                counted.completed[group] = one.sequence - 1
        return found


def _sentence(one: Incomplete, group: str) -> str:
    of = f" of group {printable(group, 100)}" if group else ""
    number = f" {one.sequence}" if one.sequence >= 0 else ""
    name = printable(one.name.removeprefix("nccl:"), 100) or "a collective"
    many = "s" if len(one.missing) != 1 else ""
    who = f"rank{many} {format_ranks(one.missing)} {'are' if many else 'is'}" if one.missing else "ranks are"
    return f"flight recorder analysis: {who} missing in {name}{number}{of}"
