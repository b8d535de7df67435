"""A verdict as Markdown, for the post-mortem: what happened when and what it cost, what was found, why, and what was not seen."""

import re
from collections.abc import Iterator

from hangdog_models.counts import counted
from hangdog_models.ranks import Rank
from hangdog_models.reading.printable import printable
from hangdog_models.verdict import Verdict
from hangdog_models.views.answer_text import BLAMELESS, doing, judged_by, percent, rank_text
from hangdog_models.views.first_line import headline
from hangdog_models.views.timeline import NOTHING, IncidentTimeline, impact, utc

#: How many of each are written; the verdict's JSON holds everything.
SUSPECTS, CLUSTERS, REASONS = 10, 16, 16
#: Characters of a rank set, and of one sentence.
WIDTH, SENTENCE = 200, 600

_SYNTAX = re.compile(r"([\\`*_{}\[\]<>#|~!])")


def markdown(verdict: Verdict, line: IncidentTimeline = NOTHING, now: float = 0.0) -> str:
    """The page; `line` is what happened when, as far as that is known at `now`, Unix seconds."""
    return "\n".join(_lines(verdict, line, now)) + "\n"


def _lines(verdict: Verdict, line: IncidentTimeline, now: float) -> Iterator[str]:
    yield f"# {plain(verdict.job_id or 'A job')}: {plain(headline(verdict))}"
    yield ""
    yield f"{counted(verdict.world_size, 'rank')}, judged by {plain(judged_by(verdict.rules))}."
    if line.events:
        cost = impact(line, now) or "Since when the job stood still was not seen."
        yield from ("", "## Impact", "", f"{plain(cost)}", "", "## What happened when", "")
        yield from (f"- {utc(one.at)}, {one.kind}: {plain(one.text)}" for one in line.events)
    yield from ("", "## Why", "")
    for reason in verdict.because:
        yield f"- {plain(reason.text)}"
    if verdict.suspects:
        title = "Where it shows" if verdict.kind in BLAMELESS else "Suspects"
        yield from ("", f"## {title}", "", "| probability | machines | ranks | why |", "|---|---|---|---|")
        for one in verdict.suspects[:SUSPECTS]:
            machines = plain(", ".join(one.machines) or "unknown")
            why = plain("; ".join(map(str, one.because)))
            yield f"| {percent(one.probability)} | {machines} | {plain(rank_text(one.ranks, WIDTH))} | {why} |"
    if verdict.evict.machines:
        sure = percent(verdict.evict.coverage)
        yield from (
            "",
            "## To evict",
            "",
            f"{plain(', '.join(verdict.evict.machines))}: the fault is inside with {sure}.",
        )
    yield from (
        "",
        "## Where the ranks stood",
        "",
        "| # | ranks | what | innermost frame | which |",
        "|---|---|---|---|---|",
    )
    for cluster in verdict.clusters[:CLUSTERS]:
        what = f"{doing(cluster)}{f', {cluster.label}' if cluster.label else ''}"
        frame = plain(cluster.stack[-1]) if cluster.stack else ""
        which = rank_text(cluster.ranks, WIDTH)
        yield f"| {cluster.id} | {len(cluster.ranks)} | {plain(what)} | {frame} | {which} |"
    yield from _unseen(verdict)


def _unseen(verdict: Verdict) -> Iterator[str]:
    coverage = verdict.coverage
    yield from ("", "## What was not seen", "")
    yield f"{coverage.captured} of {counted(coverage.expected, 'rank')} captured."
    if coverage.missing:
        yield f"Missing: {rank_text(coverage.missing, WIDTH)}."
    reasons: dict[str, list[str]] = {}
    for name, reason in coverage.failed.items():
        reasons.setdefault(reason, []).append(name)
    for reason, everybody in list(reasons.items())[:REASONS]:
        yield f"- {plain(whose(everybody))}: {plain(reason)}"
    for note in verdict.evidence.notes[:REASONS]:
        yield f"- {plain(note)}"


def whose(keys: list[str]) -> str:
    """The keys of one reason of `Coverage.failed`: as a rank set where they are ranks, else by name."""
    if all(key.isascii() and key.isdigit() for key in keys):
        return rank_text([Rank(int(key)) for key in keys], WIDTH)
    return ", ".join(keys)


def plain(text: str) -> str:
    """Foreign text that Markdown shows as it is: one line, bounded, its syntax escaped."""
    return _SYNTAX.sub(r"\\\1", printable(text, SENTENCE))
