"""Whose rank each is, by what machines announced and by what they answered; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hangdog_models.ranks import Rank
from hangdog_models.stack import ProcessTrace

Ranks = Mapping[str, Sequence[Rank]]


def owners(asked: Ranks, absent: Ranks, said: Iterable[tuple[str, Iterable[ProcessTrace]]]) -> dict[Rank, str]:
    """The machine of each rank: of those that announced it one that captured it, else any of them; else the one that
    captured it, else that spoke of it, else the gone one.

    `asked` and `absent` are what machines announced that were asked, and that are gone, `said` what they answered. So
    nobody takes a rank from another machine by merely answering for it. Where two machines' claims are alike the first by
    name has it, whichever answered first.
    """
    found = _alone(asked)  # nearly always all of them: answers settle only what is left
    captured: dict[str, set[Rank]] = {}
    named: dict[str, set[Rank]] = {}
    for machine, traces in said:
        if odd := [trace for trace in traces if trace.rank not in found]:
            named.setdefault(machine, set()).update(trace.rank for trace in odd)
            seen = (trace.rank for trace in odd if trace.threads or trace.missing is None)
            captured.setdefault(machine, set()).update(seen)
    kept = {machine: seen.intersection(asked.get(machine, ())) for machine, seen in captured.items()}
    for claims in (kept, asked, captured, named, absent):
        for machine in sorted(claims):
            for rank in claims[machine]:
                found.setdefault(rank, machine)
    return found


def _alone(asked: Ranks) -> dict[Rank, str]:
    """The machines of the ranks that only one machine announced."""
    found = {rank: machine for machine, ranks in asked.items() for rank in ranks}
    if len(found) < sum(map(len, asked.values())):
        times = Counter(rank for ranks in asked.values() for rank in set(ranks))
        found = {rank: machine for rank, machine in found.items() if times[rank] == 1}
    return found
