"""The tables of a run, hangdog's figures and beside them the peer's, as text, Markdown or JSON."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from accuracy import calibration, others
from accuracy.bounds import Reading, readings
from accuracy.figures import Figures, cleaned, figures, ours, theirs
from accuracy.simulator.incident import Evidence
from accuracy.trial import Trial

#: Columns the widest text table takes.
WIDTH = 180
_ORDER = tuple(Evidence)
#: Levels of evidence as a narrow column names them.
SHORT = {Evidence.STACKS: "stacks", Evidence.RECORDER: "+ recorder", Evidence.RAS: "+ RAS", Evidence.NATIVE: "native"}
#: What stands where a figure does not apply.
NOTHING = "-"


def percent(share: float) -> str:
    """A share in percent, with one digit: columns are narrow."""
    return f"{100 * share:.1f}".removesuffix(".0")


def exact(share: float) -> str:
    """A share in percent, so that one miss in two thousand shows."""
    return f"{100 * share:.2f} %"


def number(value: float) -> str:
    return f"{value:.2f}"


def small(value: float) -> str:
    return f"{value:.3f}"


@dataclass(frozen=True, slots=True)
class Column:
    head: str
    figure: Callable[[Figures], float | None]
    write: Callable[[float], str]

    def of(self, row: Figures) -> str:
        value = self.figure(row)
        return NOTHING if value is None else self.write(value)


HELD = Column("held", lambda f: f.contained, percent)
PER_FAULT = Column("m/f", lambda f: f.per_fault, number)
EVICTED = Column("mach", lambda f: f.evicted, number)
WRONG = Column("wrong", lambda f: f.wrong, percent)
SILENT = Column("mute", lambda f: f.silent, percent)
TOP1 = Column("top1", lambda f: f.top1, percent)
SECONDS = Column("s", lambda f: f.seconds, small)
#: hangdog's columns; the peer gives neither kinds nor probabilities, and ranks nobody inside the group it evicts.
OURS = (
    HELD,
    Column("named", lambda f: f.named, percent),
    PER_FAULT,
    EVICTED,
    WRONG,
    SILENT,
    Column("kind", lambda f: f.right, percent),
    TOP1,
    Column("top3", lambda f: f.top3, percent),
    Column("Brier", lambda f: f.brier, small),
    SECONDS,
)
THEIRS = (HELD, PER_FAULT, EVICTED, WRONG, SILENT, TOP1, SECONDS)
#: The peer on cleaned stacks: what changes there.
CLEANED = (HELD, PER_FAULT, WRONG)

#: What the heads mean, below the tables.
LEGEND = (
    "n: snapshots. Shares are in percent. held: every guilty machine is evicted. named: nobody is evicted because the group is too",
    "wide, and it holds them. m/f: machines evicted for each guilty one; mach: machines evicted; both where somebody is. wrong:",
    "somebody is evicted where nobody is guilty. mute: no cause is named (the peer: nobody is evicted). kind: the verdict's word is",
    "right. top1, top3: who is sought is among the first. Brier: of the first suspect's probability. s: CPU seconds.",
    "P: the peer, ByteRobust's published aggregation. C: the same on stacks cleaned by hangdog.",
)


@dataclass(frozen=True, slots=True)
class Row:
    labels: tuple[str, ...]
    ours: Figures
    theirs: Figures
    cleaned: Figures

    def cells(self) -> list[str]:
        sides = ((OURS, self.ours), (THEIRS, self.theirs), (CLEANED, self.cleaned))
        return [*self.labels, str(self.ours.trials), *(c.of(side) for columns, side in sides for c in columns)]


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    labels: tuple[str, ...]
    rows: tuple[Row, ...]

    def heads(self) -> list[str]:
        marked = [f"{mark} {c.head}" for mark, columns in (("P", THEIRS), ("C", CLEANED)) for c in columns]
        return [*self.labels, "n", *(c.head for c in OURS), *marked]

    def cells(self) -> list[list[str]]:
        return [row.cells() for row in self.rows]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a run shows. `curves` are reliability curves by what they are about."""

    incidents: int
    tables: tuple[Table, ...]
    readings: tuple[Reading, ...]
    curves: tuple[tuple[str, tuple[calibration.Bin, ...]], ...]
    worlds: tuple[others.World, ...] = ()


def report(trials: Sequence[Trial], worlds: Sequence[others.World] = ()) -> Report:
    """The tables, bounds and curves of these trials, and the other worlds."""
    return Report(
        len({(trial.seed, trial.ranks, trial.fault) for trial in trials}),
        (
            table("by family and evidence", ("family", "evidence"), trials, lambda t: t.family),
            table("by fault and evidence", ("fault", "evidence"), trials, lambda t: t.fault),
            table("by size", ("ranks", "evidence"), trials, lambda t: t.ranks),
        ),
        tuple(readings(trials)),
        (
            ("the first suspect's probability", tuple(calibration.reliability(calibration.of_suspects(trials)))),
            ("that of an open case", tuple(calibration.reliability(calibration.of_open_cases(trials)))),
            ("the confidence of a verdict", tuple(calibration.reliability(calibration.of_kinds(trials)))),
        ),
        tuple(worlds),
    )


def table(title: str, labels: tuple[str, str], trials: Iterable[Trial], key: Callable[[Trial], str | int]) -> Table:
    """One row for each key and level of evidence, in the order of the keys and of the levels."""
    sets: dict[tuple[Any, int], list[Trial]] = {}
    for trial in trials:
        sets.setdefault((key(trial), _ORDER.index(trial.evidence)), []).append(trial)
    return Table(
        title,
        labels,
        tuple(
            Row(
                (str(name), SHORT[_ORDER[at]]), figures(chosen, ours), figures(chosen, theirs), figures(chosen, cleaned)
            )
            for (name, at), chosen in sorted(sets.items())
        ),
    )


def print_text(shown: Report, console: Console) -> None:
    """The report for a terminal."""
    for one in shown.tables:
        _print(console, f"{one.title} ({shown.incidents} incidents)", one.heads(), one.cells(), len(one.labels))
    console.print("\n".join(LEGEND), style="dim", highlight=False)
    _print(console, "bounds", _BOUND_HEADS, _bounds(shown.readings), 2)
    for name, bins in shown.curves:
        _print(console, f"reliability of {name}", _BIN_HEADS, _bins(bins), 1)
    if shown.worlds:
        _print(console, others.TITLE, others.HEADS, [one.cells() for one in shown.worlds], 1)


def markdown(shown: Report) -> str:
    """The report as Markdown, for the docs."""
    parts = [f"{shown.incidents} incidents."]
    for one in shown.tables:
        parts.append(_markdown(one.title, one.heads(), one.cells(), len(one.labels)))
    parts.append(" ".join(LEGEND))
    parts.append(_markdown("bounds", _BOUND_HEADS, _bounds(shown.readings), 2))
    parts += [_markdown(f"reliability of {name}", _BIN_HEADS, _bins(bins), 1) for name, bins in shown.curves]
    parts += [_markdown(others.TITLE, others.HEADS, [one.cells() for one in shown.worlds], 1)] if shown.worlds else []
    return "\n\n".join(parts) + "\n"


def document(shown: Report) -> dict[str, Any]:
    """The report as a JSON object; shares from 0 to 1, null where a figure does not apply."""
    return {
        "schema": "hangdog.accuracy/1",
        "incidents": shown.incidents,
        "tables": {
            one.title: [
                dict(zip(one.labels, row.labels, strict=True))
                | {"hangdog": asdict(row.ours), "peer": asdict(row.theirs), "peer, cleaned": asdict(row.cleaned)}
                for row in one.rows
            ]
            for one in shown.tables
        },
        "bounds": [asdict(reading) | {"met": reading.met} for reading in shown.readings],
        "reliability": {name: [asdict(one) for one in bins] for name, bins in shown.curves},
        "worlds": [asdict(one) for one in shown.worlds],
    }


_BOUND_HEADS = ["bound", "met", "reached", "must be", "peer", "n"]
_BIN_HEADS = ["predicted in", "mean predicted", "observed", "n"]


def _bounds(read: Iterable[Reading]) -> list[list[str]]:
    def value(reading: Reading, of: float | None) -> str:
        share = "machines" not in reading.name
        return NOTHING if of is None else exact(of) if share else number(of)

    return [
        [
            reading.name,
            "yes" if reading.met else "MISSED",
            value(reading, reading.reached),
            f"{'>=' if reading.at_least else '<='} {value(reading, reading.limit)}",
            value(reading, reading.peer),
            str(reading.trials),
        ]
        for reading in read
    ]


def _bins(bins: Iterable[calibration.Bin]) -> list[list[str]]:
    return [
        [f"{one.low:.2f}-{one.high:.2f}", small(one.predicted), small(one.observed), str(one.count)] for one in bins
    ]


def _print(console: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], labels: int) -> None:
    console.print(title, style="bold", highlight=False)
    shown = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for at, head in enumerate(heads):
        marked = head.replace(" ", "\n", 1) if at >= labels and head[:2] in ("P ", "C ") else head
        shown.add_column(marked, justify="left" if at < labels else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


def _markdown(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], labels: int) -> str:
    lines = [f"### {title[:1].upper()}{title[1:]}", "", "| " + " | ".join(heads) + " |"]
    lines.append("|" + "|".join("---" if at < labels else "---:" for at in range(len(heads))) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
