"""The report: figures, tallies and machines, each with its definition, how many cases it rests on, and what is not known."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What a figure is measured in."""

    SECONDS = "s"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure over `count` cases (`of`: incidents, runs, ...). No `value`: it is not known, and `unknown` says why.

    A time is a mean, with the median and the longest beside it. With a value `unknown` says what it leaves out.
    """

    key: str
    title: str
    unit: Unit
    value: float | None
    count: int
    of: str
    definition: str
    unknown: str = ""
    median: float | None = None
    longest: float | None = None


@dataclass(frozen=True, slots=True)
class ReportTable:
    """How many cases (`of`) there are of each sort; those of no case are left out where they say nothing."""

    key: str
    title: str
    of: str
    definition: str
    counts: tuple[tuple[str, int], ...]
    unknown: str = ""

    @property
    def total(self) -> int:
        """All cases."""
        return sum(count for _, count in self.counts)


@dataclass(frozen=True, slots=True)
class Offender:
    """A machine that verdicts or campaigns named: in how many it stands convicted, suspected or cleared.

    `weight` is the sum of its shares of probability, `last` the Unix time when it was last named. `lemon`: it stands out.
    """

    machine: str
    convicted: int
    suspected: int
    cleared: int
    weight: float
    last: float
    lemon: bool


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines that were named, the worst first: `listed` of `named`, and how a lemon is told."""

    definition: str
    named: int
    listed: tuple[Offender, ...]


@dataclass(frozen=True, slots=True)
class Trained:
    """One job: seconds that are known of it, what of them was lost to failures, how often it failed and was restarted."""

    job: str
    watched: float
    lost: float
    failures: int
    restarts: int

    @property
    def share(self) -> float | None:
        """The share of its time in which it got on; None where none is known."""
        return (self.watched - self.lost) / self.watched if self.watched > 0 else None


@dataclass(frozen=True, slots=True)
class Training:
    """The jobs of which anything is known, those that lost most first: `listed` of `known`, and who told of them (`seen`)."""

    definition: str = ""
    seen: str = ""
    known: int = 0
    listed: tuple[Trained, ...] = ()


@dataclass(frozen=True, slots=True)
class OperationsReport:
    """What operation was like from `since` to `until` (Unix seconds), after `basis`: whose word it all is."""

    since: float
    until: float
    basis: str
    figures: tuple[Figure, ...]
    tallies: tuple[ReportTable, ...]
    machines: Machines
    notes: tuple[str, ...] = ()
    training: Training = Training()


def span(
    key: str, title: str, seconds: Collection[float], of: str, definition: str, unknown: str, partly: str = ""
) -> Figure:
    """A time over these cases; `unknown` is why none is known, `partly` what the mean leaves out."""
    ordered = sorted(seconds)
    if not ordered:
        return Figure(key, title, Unit.SECONDS, None, 0, of, definition, unknown)
    count, half = len(ordered), len(ordered) // 2
    median = ordered[half] if count % 2 else (ordered[half - 1] + ordered[half]) / 2
    mean = math.fsum(ordered) / count
    return Figure(key, title, Unit.SECONDS, mean, count, of, definition, partly, median, ordered[-1])


def share(
    key: str, title: str, part: float, whole: float, count: int, of: str, definition: str, unknown: str,
    partly: str = "",
) -> Figure:  # fmt: skip
    """A share of the whole over `count` cases; of nothing there is none."""
    if whole <= 0:
        return Figure(key, title, Unit.SHARE, None, 0, of, definition, unknown)
    return Figure(key, title, Unit.SHARE, part / whole, count, of, definition, partly)


def report_table(
    key: str, title: str, of: str, definition: str, counts: Mapping[str, int], unknown: str = ""
) -> ReportTable:
    """What was counted, in the order that `counts` has."""
    return ReportTable(key, title, of, definition, tuple(counts.items()), unknown)
