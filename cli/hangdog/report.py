"""The verdict as a person reads it at 3 am: the answer and the order first, then the reasons, then the evidence."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from hangdog.terminal import printable
from hangdog_models.ranks import format_ranks
from hangdog_models.verdict import ClusterView, Kind, StuckGroup, Verdict

#: How many of each are shown before `and N more`: one screen holds the answer, the JSON holds everything.
SUSPECTS, CLUSTERS, GROUPS, FAILURES, FILES, FRAMES = 10, 16, 8, 8, 5, 3
#: Machines named in the headline; all of them stand under `evict`.
HEADLINE_MACHINES = 4
#: Characters of a rank set in the headline, and of a victim's below; a suspect's is never cut.
HEADLINE_RANKS, RANKS_WIDTH = 32, 200
#: The widest machine name to align the suspects' ranks by; a longer one pushes its own ranks aside.
NAME_WIDTH = 30

#: Colour of the headline. It only repeats the word that stands there, so nothing is lost without it.
STYLES = {Kind.NONE: "bold green", Kind.UNDETERMINED: "bold yellow"}

#: Kinds that blame no machine: there, calling a machine suspect would send somebody to the wrong place.
BLAMELESS = (Kind.SOFTWARE, Kind.DEPENDENCY)


class Line(NamedTuple):
    """One line of a section: `mark` stands before it, and what wraps is indented under `text`; a frame is cut instead."""

    text: str
    mark: str = ""
    frame: bool = False


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Prints the verdict as text; plain where the console is no terminal, and never wider than the console."""
    _print(Line(headline(verdict)), console, STYLES.get(verdict.kind, "bold red"))
    job = printable(verdict.job_id) or "(unnamed)"
    _print(Line(f"job {job}, {_count(verdict.world_size, 'rank')}, judged by {printable(verdict.rules)}"), console)
    for title, lines in (
        ("because", _listed(verdict.because)),
        ("evict", _evict(verdict)),
        ("suspects" if verdict.kind not in BLAMELESS else "where it shows", _suspects(verdict)),
        ("stuck groups", _groups(verdict.groups)),
        ("clusters", _clusters(verdict)),
        ("coverage", _coverage(verdict)),
        ("evidence", _evidence(verdict)),
        ("notes", _listed(verdict.evidence.notes)),
    ):
        for number, line in enumerate(lines):
            if number == 0:
                console.print()
                console.print(Text(title, "bold"))
            _print(line._replace(mark=f"  {line.mark}"), console)


def _print(line: Line, console: Console, style: str = "") -> None:
    width = max(console.width - cell_len(line.mark), 1)
    text = Text(line.text, style or ("dim" if line.frame else ""))
    if line.frame:
        text.truncate(width, overflow="ellipsis")
    for number, part in enumerate([text] if line.frame else text.wrap(console, width, overflow="fold")):
        whole = Text(line.mark if number == 0 else " " * len(line.mark)).append_text(part)
        whole.rstrip()
        console.print(whole, soft_wrap=True)


def headline(verdict: Verdict) -> str:
    """The answer in one line: what it is, which machines, how sure, and what to do now."""
    first = verdict.suspects[0] if verdict.suspects else None
    names = verdict.evict.machines or (first.machines if first else ())
    who = _some(names, HEADLINE_MACHINES) or (_ranks(first.ranks, HEADLINE_RANKS) if first else "a machine")
    said = {
        Kind.MACHINE: f"{who} {'holds' if len(names) < 2 else 'hold'} the job up",
        Kind.GROUP: f"{_which_group(verdict)} all joined, and nothing completes",
        Kind.SOFTWARE: "the code is at fault, no machine is",
        Kind.DEPENDENCY: "a service that many ranks share blocks them",
        Kind.SLOW: f"{who} {'holds' if len(names) < 2 else 'hold'} the job back"
        if first
        else "the job makes progress, but is held back",
        Kind.NONE: "the job is making progress",
        Kind.UNDETERMINED: "the evidence does not decide",
    }[verdict.kind]
    sure = "" if verdict.kind is Kind.UNDETERMINED else f" ({percent(verdict.confidence)} sure)"
    return f"{verdict.kind}: {said}{sure}. {_order(verdict)}"


def percent(probability: float) -> str:
    """A probability in whole percent; certainty is never rounded up to."""
    if 0 < probability < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= probability < 1 else f"{probability:.0%}"


def _order(verdict: Verdict) -> str:
    if verdict.evict.machines:
        return f"Evict {_some(verdict.evict.machines, HEADLINE_MACHINES)}."
    if verdict.kind is Kind.UNDETERMINED:
        return "Evict nobody; collect what is named below."
    return "Evict nobody yet." if verdict.kind in (Kind.MACHINE, Kind.GROUP) else "Evict nobody."


def _which_group(verdict: Verdict) -> str:
    if not verdict.groups:
        return "the ranks of one group"
    return f"{printable(verdict.groups[0].dim)} {_ranks(verdict.groups[0].ranks, HEADLINE_RANKS)}"


def _evict(verdict: Verdict) -> Iterator[Line]:
    machines = verdict.evict.machines
    if machines:
        yield Line(", ".join(map(printable, machines)))
        yield Line(f"the fault is inside with {percent(verdict.evict.coverage)} probability")


def _suspects(verdict: Verdict) -> Iterator[Line]:
    """Most probable first; a reason that stands under `because` already is not repeated."""
    shown = verdict.suspects[:SUSPECTS]
    names = [", ".join(map(printable, suspect.machines)) or "(machine unknown)" for suspect in shown]
    column = min(max(map(cell_len, names), default=0), NAME_WIDTH)
    for suspect, name in zip(shown, names, strict=True):
        mark = f"{percent(suspect.probability):>4} "
        yield Line(f"{name}{' ' * (column - cell_len(name))}  {_ranks(suspect.ranks)}", mark)
        for reason in (reason for reason in suspect.because if reason not in verdict.because):
            yield Line(printable(reason), " " * len(mark) + "- ")
    yield from _more(len(verdict.suspects) - SUSPECTS, "less probable suspect")


def _groups(groups: tuple[StuckGroup, ...]) -> Iterator[Line]:
    for group in groups[:GROUPS]:
        yield Line(f"{printable(group.dim)} {_ranks(group.ranks, RANKS_WIDTH)}: {printable(group.why)}")
    yield from _more(len(groups) - GROUPS, "group")


def _clusters(verdict: Verdict) -> Iterator[Line]:
    """The clusters in the verdict's order; when not all are shown, those of suspects and then the largest are."""
    suspected = {rank for suspect in verdict.suspects[:SUSPECTS] for rank in suspect.ranks}
    by_weight = sorted(verdict.clusters, key=lambda c: (suspected.isdisjoint(c.ranks), -len(c.ranks), c.id))
    shown = {cluster.id for cluster in by_weight[:CLUSTERS]}
    for cluster in verdict.clusters:
        if cluster.id in shown:
            yield from _cluster(cluster)
    yield from _more(len(verdict.clusters) - CLUSTERS, "cluster")


def _cluster(cluster: ClusterView) -> Iterator[Line]:
    where = f" in {printable(cluster.dim)}" if cluster.dim else ""
    label = f", {printable(cluster.label)}" if cluster.label else ""
    size = f"{_count(len(cluster.ranks), 'rank')}: " if len(cluster.ranks) > 1 else ""
    yield Line(f"{size}{cluster.activity}{where}{label}; {_ranks(cluster.ranks, RANKS_WIDTH)}", f"#{cluster.id} ")
    if len(cluster.stack) > FRAMES:
        yield Line(f"... {_count(len(cluster.stack) - FRAMES, 'outer frame')}", "   ", frame=True)
    for frame in cluster.stack[-FRAMES:]:
        yield Line(printable(frame), "   ", frame=True)


def _coverage(verdict: Verdict) -> Iterator[Line]:
    coverage = verdict.coverage
    yield Line(f"{coverage.captured} of {_count(coverage.expected, 'rank')} captured")
    if coverage.missing:
        yield Line(f"missing: {_ranks(coverage.missing, RANKS_WIDTH)}")
    reasons: dict[str, list[str]] = {}
    for whose, reason in coverage.failed.items():
        reasons.setdefault(reason, []).append(whose)
    for reason, everybody in list(reasons.items())[:FAILURES]:
        yield Line(f"{_whose(everybody)}: {printable(reason)}", "- ")
    yield from _more(len(reasons) - FAILURES, "reason")


def _evidence(verdict: Verdict) -> Iterator[Line]:
    evidence = verdict.evidence
    ignored, unreadable = len(evidence.ignored), len(evidence.unreadable)
    yield Line(f"{_count(evidence.files_read, 'file')} read, {ignored} ignored, {unreadable} unreadable")
    if ignored:
        yield Line(f"ignored: {_some(evidence.ignored, FILES)}")
    for name, reason in list(evidence.unreadable.items())[:FILES]:
        yield Line(f"{printable(name)}: {printable(reason)}", "- ")
    yield from _more(unreadable - FILES, "unreadable file")


def _listed(sentences: Iterable[str]) -> Iterator[Line]:
    for sentence in sentences:
        yield Line(printable(sentence), "- ")


def _ranks(ranks: Sequence[int], width: int | None = None) -> str:
    """`rank 7`, or `ranks 0-3, 7`: wraps at its commas; cut between two runs when wider than `width`, then with the count."""
    if not ranks:
        return "no rank"
    runs = format_ranks(ranks).split(",")
    text = ", ".join(runs)
    if width is not None and len(text) > width:
        text = f"{text[:width].rpartition(', ')[0] or runs[0]}, ... ({len(ranks)} in all)"
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def _whose(keys: list[str]) -> str:
    """The keys of one reason: as a rank set where they are ranks, else by name."""
    if all(key.isascii() and key.isdigit() for key in keys):
        return _ranks([int(key) for key in keys], RANKS_WIDTH)
    return _some(keys, FAILURES)


def _some(names: Iterable[str], most: int) -> str:
    known = [printable(name) for name in names]
    rest = len(known) - most
    return ", ".join(known[:most]) + (f" and {rest} more" if rest > 0 else "")


def _more(rest: int, what: str) -> Iterator[Line]:
    if rest > 0:
        yield Line(f"... and {_count(rest, f'more {what}')}: --format json has all")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
