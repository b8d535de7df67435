"""The verdict as a person reads it at 3 am: the answer and the order first, then the reasons, then the evidence."""

from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import Console

from hangdog.output.lines import Line, more, print_line, print_sections
from hangdog.output.terminal import printable
from hangdog_models.counts import counted
from hangdog_models.diagnosis.verdict.next_steps import COLLECT
from hangdog_models.verdict import ClusterView, Kind, StuckGroup, Verdict
from hangdog_models.views.answer_text import BLAMELESS, doing, judged_by, percent, rank_text, some
from hangdog_models.views.first_line import headline, steps

#: How many of each are shown before `and N more`: one screen holds the answer, the JSON holds everything.
SUSPECTS, CLUSTERS, GROUPS, FAILURES, FILES, FRAMES = 10, 16, 8, 8, 5, 3
#: Characters of a victim's rank set; a suspect's is never cut.
RANKS_WIDTH = 200
#: The widest machine name to align the suspects' ranks by; a longer one pushes its own ranks aside.
NAME_WIDTH = 30

#: Colour of the headline. It only repeats the word that stands there, so nothing is lost without it.
STYLES = {Kind.NONE: "bold green", Kind.UNDETERMINED: "bold yellow"}


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Prints the verdict as text; plain where the console is no terminal, and never wider than the console."""
    print_line(Line(headline(verdict)), console, STYLES.get(verdict.kind, "bold red"))
    collected = {step.why for step in verdict.next}  # what to collect stands among the steps
    because = (one.text for one in verdict.because if one.text.removeprefix(COLLECT) not in collected)
    job = printable(verdict.job_id) or "(unnamed)"
    whose = f"job {job}, {counted(verdict.world_size, 'rank')}"
    if verdict.check is not None and not verdict.world_size:
        whose = f"no job runs on {printable(verdict.check.machine)}"
    print_line(Line(f"{whose}, judged by {printable(judged_by(verdict.rules))}"), console)
    sections = (
        ("because", _listed(because)),
        ("next", _numbered(steps(verdict))),
        ("suspects" if verdict.kind not in BLAMELESS else "where it shows", _suspects(verdict)),
        ("stuck groups", _groups(verdict.groups)),
        ("clusters", _clusters(verdict)),
        ("coverage", _coverage(verdict)),
        ("evidence", _evidence(verdict)),
        ("notes", _listed(verdict.evidence.notes)),
    )
    print_sections(sections, console)


def _numbered(sentences: Iterable[str]) -> Iterator[Line]:
    for number, sentence in enumerate(sentences, start=1):
        yield Line(printable(sentence), f"{number}. ")


def _suspects(verdict: Verdict) -> Iterator[Line]:
    """Most probable first; a reason that stands under `because` already is not repeated."""
    shown = verdict.suspects[:SUSPECTS]
    names = [", ".join(map(printable, suspect.machines)) or "(machine unknown)" for suspect in shown]
    column = min(max(map(cell_len, names), default=0), NAME_WIDTH)
    for suspect, name in zip(shown, names, strict=True):
        mark = f"{percent(suspect.probability):>4} "
        yield Line(f"{name}{' ' * (column - cell_len(name))}  {rank_text(suspect.ranks)}", mark)
        for reason in suspect.because:
            if not any(reason.text in one.text for one in verdict.because):
                yield Line(printable(reason.text), " " * len(mark) + "- ")
    yield from more(len(verdict.suspects) - SUSPECTS, "less probable suspect")


def _groups(groups: tuple[StuckGroup, ...]) -> Iterator[Line]:
    for group in groups[:GROUPS]:
        yield Line(f"{printable(group.dim)} {rank_text(group.ranks, RANKS_WIDTH)}: {printable(group.why)}")
    yield from more(len(groups) - GROUPS, "group")


def _clusters(verdict: Verdict) -> Iterator[Line]:
    """The clusters in the verdict's order; when not all are shown, those of suspects and then the largest are."""
    suspected = {rank for suspect in verdict.suspects[:SUSPECTS] for rank in suspect.ranks}
    by_weight = sorted(verdict.clusters, key=lambda c: (suspected.isdisjoint(c.ranks), -len(c.ranks), c.id))
    shown = {cluster.id for cluster in by_weight[:CLUSTERS]}
    for cluster in verdict.clusters:
        if cluster.id in shown:
            yield from _cluster(cluster)
    yield from more(len(verdict.clusters) - CLUSTERS, "cluster")


def _cluster(cluster: ClusterView) -> Iterator[Line]:
    label = f", {printable(cluster.label)}" if cluster.label else ""
    size = f"{counted(len(cluster.ranks), 'rank')}: " if len(cluster.ranks) > 1 else ""
    yield Line(f"{size}{doing(cluster)}{label}; {rank_text(cluster.ranks, RANKS_WIDTH)}", f"#{cluster.id} ")
    if len(cluster.stack) > FRAMES:
        yield Line(f"... {counted(len(cluster.stack) - FRAMES, 'outer frame')}", "   ", frame=True)
    for frame in cluster.stack[-FRAMES:]:
        yield Line(printable(frame), "   ", frame=True)


def _coverage(verdict: Verdict) -> Iterator[Line]:
    coverage = verdict.coverage
    yield Line(f"{coverage.captured} of {counted(coverage.expected, 'rank')} captured")
    if coverage.missing:
        yield Line(f"missing: {rank_text(coverage.missing, RANKS_WIDTH)}")
    reasons: dict[str, list[str]] = {}
    for whose, reason in coverage.failed.items():
        reasons.setdefault(reason, []).append(whose)
    for reason, everybody in list(reasons.items())[:FAILURES]:
        yield Line(f"{_whose(everybody)}: {printable(reason)}", "- ")
    yield from more(len(reasons) - FAILURES, "reason")


def _evidence(verdict: Verdict) -> Iterator[Line]:
    evidence = verdict.evidence
    ignored, unreadable = len(evidence.ignored), len(evidence.unreadable)
    yield Line(f"{counted(evidence.files_read, 'file')} read, {ignored} ignored, {unreadable} unreadable")
    if ignored:
        yield Line(f"ignored: {some(evidence.ignored, FILES)}")
    for name, reason in list(evidence.unreadable.items())[:FILES]:
        yield Line(f"{printable(name)}: {printable(reason)}", "- ")
    yield from more(unreadable - FILES, "unreadable file")


def _listed(sentences: Iterable[str]) -> Iterator[Line]:
    for sentence in sentences:
        yield Line(printable(sentence), "- ")


def _whose(keys: list[str]) -> str:
    """The keys of one reason: as a rank set where they are ranks, else by name."""
    if all(key.isascii() and key.isdigit() for key in keys):
        return rank_text([int(key) for key in keys], RANKS_WIDTH)
    return some(keys, FAILURES)
