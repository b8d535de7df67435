"""Whose rank each is, by what machines announced and by what they answered; pure."""

from collections.abc import Iterable, Mapping, Sequence

from hangdog_models.ranks import Rank
from hangdog_models.stack import ProcessTrace

Ranks = Mapping[str, Sequence[Rank]]


def owners(
    asked: Ranks, absent: Ranks, stated: Iterable[tuple[str, Iterable[ProcessTrace]]], world: int | None = None
) -> dict[Rank, str]:
    """The machine of each rank: the first of `asked` that announced it; else one that captured it, else spoke of it, else the
    gone one. No answer makes a rank of one that a job of `world` ranks does not have.

    `asked` and `absent` are what machines announced that were asked, and that are gone; of several that announced one rank
    the first in order has it (`claims`), whatever it and the others answer. `said` is what they answered.
    """
    found: dict[Rank, str] = {}
    for machine, ranks in asked.items():
        for rank in ranks:
            found.setdefault(rank, machine)
    captured: dict[str, set[Rank]] = {}
    named: dict[str, set[Rank]] = {}
    for machine, traces in stated:
        odd = [trace for trace in traces if trace.rank not in found and (world is None or trace.rank < world)]
        if odd:
            named.setdefault(machine, set()).update(trace.rank for trace in odd)
            seen = (trace.rank for trace in odd if trace.threads or trace.missing is None)
            captured.setdefault(machine, set()).update(seen)
    for claims in (captured, named, absent):
        for machine in sorted(claims):
            for rank in claims[machine]:
                found.setdefault(rank, machine)
    return found
