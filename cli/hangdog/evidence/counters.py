"""Puts together what is not a process trace: counters of each rank from all sources, RAS reports."""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace

from hangdog.evidence.content import Logged, ReadRequest, RingFile
from hangdog.evidence.placed import Placed
from hangdog_models.collectives import INSPECTOR, RankCounters, RasReport, got_on, stood_still
from hangdog_models.progress.collective_progress import RankProgress
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.library_counters import united
from hangdog_models.reading.logs import nameless


def got_on_ranks(
    ordered: Sequence[Placed], unused: MutableMapping[str, str]
) -> tuple[tuple[Rank, ...], tuple[Rank, ...]]:
    """The ranks that completed operations between the last two rounds with a flight record, and those that stood still.

    The records of the round before the last one, of which nothing else is taken, leave `unused`.
    """
    by_rank: dict[Rank, dict[int, tuple[str, RankCounters]]] = {}
    for placed in ordered:
        if isinstance(placed.content, RankCounters) and placed.name.round is not None:
            inside = by_rank.setdefault(placed.content.rank, {})
            inside.setdefault(placed.name.round, (placed.name.path, placed.content))
    found: list[Rank] = []
    stood: list[Rank] = []
    for rank, rounds in sorted(by_rank.items()):
        if len(rounds) > 1:
            (path, before), (_, after) = (rounds[at] for at in sorted(rounds)[-2:])
            unused.pop(path, None)
            if got_on(before, after):
                found.append(rank)
            elif stood_still(before, after):
                stood.append(rank)
    return tuple(found), tuple(stood)


def counters_of(ordered: Sequence[Placed], unused: MutableMapping[str, str]) -> tuple[RankCounters, ...]:
    """The counters of each rank, in rank order; recorders that are not the latest of their rank go to `unused`.

    Of several rounds the latest counts, because counters only rise. Of one group the flight recorder counts more than
    a log, and what a rank says itself more than what others say of it.
    """
    found: dict[Rank, tuple[str, RankCounters]] = {}
    latest_first = sorted(ordered, key=lambda placed: _round(placed, -1), reverse=True)
    recorded = sorted(latest_first, key=_inspected)
    for placed in recorded:
        if isinstance(placed.content, RankCounters):
            path, _ = found.setdefault(placed.content.rank, (placed.name.path, placed.content))
            if path != placed.name.path:
                whose = f"the flight record of rank {placed.content.rank}"
                unused[placed.name.path] = f"{whose} is already read from {path}"
    counters = {rank: record for rank, (_, record) in found.items()}
    logs = [one for own in (True, False) for one in _log_counters(latest_first, own)]
    for logged in nameless.comparable(logs):
        counters[logged.rank] = joined(counters[logged.rank], logged) if logged.rank in counters else logged
    return tuple(record for _, record in sorted(counters.items()))


def progress_of(ordered: Sequence[Placed], unused: MutableMapping[str, str]) -> tuple[RankProgress, ...]:
    """How far the operations of each rank have come, in rank order: of several rounds the latest counts."""
    found: dict[Rank, tuple[str, RankProgress]] = {}
    for placed in sorted(ordered, key=lambda placed: _round(placed, -1), reverse=True):
        if isinstance(placed.content, RingFile) and (rank := placed.name.rank) is not None:
            path, _ = found.setdefault(rank, (placed.name.path, RankProgress(rank, placed.content.communicators)))
            if path != placed.name.path:
                unused[placed.name.path] = f"the profiler ring of rank {rank} is already read from {path}"
    return tuple(ring for _, (_, ring) in sorted(found.items()))


def _inspected(placed: Placed) -> bool:
    """Whether it is a dump of NCCL Inspector, which tells less than a flight record."""
    return isinstance(placed.content, RankCounters) and placed.content.source == INSPECTOR


def _log_counters(files: Iterable[Placed], own: bool) -> Iterator[RankCounters]:
    for placed in files:
        if isinstance(placed.content, Logged):
            for stream in placed.content.streams:
                if stream.counters is not None and stream.rank is not None and stream.own is own:
                    yield stream.counters


def joined(first: RankCounters, second: RankCounters) -> RankCounters:
    """The counters of one rank from two sources; of a group that both know, those of the first."""
    groups = {*first.enqueued, *first.completed, *(entry.group for entry in first.entries)}
    new = tuple(entry for entry in second.entries if entry.group not in groups)

    def added(ours: dict[str, int], theirs: dict[str, int]) -> dict[str, int]:
        return ours | {group: number for group, number in theirs.items() if group not in groups}

    return replace(
        first,
        enqueued=added(first.enqueued, second.enqueued),
        completed=added(first.completed, second.completed),
        started=added(first.started, second.started),
        entries=first.entries + new,
        members=second.members | first.members,
        descriptions=second.descriptions | first.descriptions,
    )


def ras_reports(ordered: Sequence[Placed]) -> tuple[RasReport, ...]:
    """All reports from old to new: by round, then by the time they give, then by path.

    What several machines' folders hold of one round is of one moment: their last reports are united, because each reaches
    only the processes that its own are connected with.
    """
    files = [placed for placed in ordered if isinstance(placed.content, ReadRequest) and placed.content.reports]
    by_round: dict[int, dict[str, Placed]] = {}
    for placed in files:
        if placed.name.machine is not None:
            by_round.setdefault(_round(placed, 0), {})[placed.name.machine] = placed
    reports: list[tuple[int, float, int, RasReport]] = []
    for at, machines in by_round.items():
        if len(machines) > 1:
            one = united([_reports(placed)[-1] for placed in machines.values()])
            reports.append((at, one.at_s or 0.0, len(files), one))
    for number, placed in enumerate(files):
        at = _round(placed, 0)
        if placed.name.machine is None or len(by_round[at]) == 1:
            reports += [(at, report.at_s or 0.0, number, report) for report in _reports(placed)]
    return tuple(report for *_, report in sorted(reports, key=lambda item: item[:3]))


def _reports(placed: Placed) -> tuple[RasReport, ...]:
    return placed.content.reports if isinstance(placed.content, ReadRequest) else ()


def _round(placed: Placed, otherwise: int) -> int:
    return otherwise if placed.name.round is None else placed.name.round
