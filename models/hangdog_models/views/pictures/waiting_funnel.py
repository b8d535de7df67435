"""Who waits behind the first suspect, in bands: those that wait for it itself, then those that wait for these, and so on."""

from collections.abc import Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank, Runs, runs_of, size
from hangdog_models.verdict import Suspect
from hangdog_models.views.waits_view import Known, known

#: Steps from the suspect that are told apart; whoever waits further away is in the last one.
DEEPEST = 6
#: Bands drawn. The smallest of further ones are counted together.
BANDS = 10


@dataclass(frozen=True, slots=True)
class Band:
    """Ranks that wait, none of which is in another band, in operations `what` of groups along `dim`; `known` says from what.

    `steps`: 1 where they wait for the suspect itself, 2 where for those. 0: for whom they wait is not known.
    """

    steps: int
    dim: str
    what: str
    known: Known
    ranks: Runs


@dataclass(frozen=True, slots=True)
class Funnel:
    """The first suspect's ranks at the narrow end and the bands behind, nearest first; `more` bands with `more_ranks` are not shown."""

    suspect: Runs = ()
    bands: tuple[Band, ...] = ()
    more: int = 0
    more_ranks: int = 0


def funnel(case: Case, suspects: Sequence[Suspect]) -> Funnel:
    """The funnel above the first suspect; empty where nobody is known to wait for it."""
    if not suspects:
        return Funnel()
    waits, mine = case.waits, frozenset(suspects[0].ranks)
    inside: dict[tuple[int, str, str, Known], list[Rank]] = {}
    seen, edge, steps = set(mine), sorted(mine), 0
    while edge:
        steps = min(steps + 1, DEEPEST)
        behind: dict[int, GroupWait] = {id(hold): hold for rank in edge for hold in waits.holds_for(rank)}
        edge = []
        for hold in behind.values():
            fresh = [rank for rank in hold.inside if rank not in seen]
            if fresh:
                seen.update(fresh)
                edge += fresh
                inside.setdefault((steps, str(hold.dim), hold.what, known(hold)), []).extend(fresh)
    if not inside:
        return Funnel()
    if loose := waits.loose - seen:
        inside[0, "", "", Known.UNKNOWN] = sorted(loose)
    bands = [Band(*key, runs_of(ranks)) for key, ranks in inside.items()]
    largest = sorted(bands, key=lambda band: -size(band.ranks))
    kept = sorted(largest[:BANDS], key=lambda band: (not band.steps, band.steps, size(band.ranks), band.dim, band.what))
    rest = largest[BANDS:]
    return Funnel(runs_of(mine), tuple(kept), len(rest), sum(size(band.ranks) for band in rest))
