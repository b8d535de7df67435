"""Gives the dumps of NCCL Inspector their ranks and machines, and turns them into counters of the job's ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdog.evidence.content import Inspected, Logged
from hangdog.evidence.placed import Placed
from hangdog_models import counts
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.collectives.inspected_ranks import joined, left_behind, world_of
from hangdog_models.reading.collectives.inspector import InspectedRank
from hangdog_models.topology import Layout

#: The round of a file, and the rank of what it holds.
_ByRank = dict[Rank, tuple[Placed, InspectedRank]]


def counted(
    found: Sequence[Placed], layout: Layout, stalled: bool
) -> tuple[list[Placed], Mapping[str, str], tuple[str, ...]]:
    """The same evidence with counters in place of the dumps; by path why a dump is not used; remarks.

    The job is taken to stand still where somebody stated it (`stalled`), and where two rounds of dumps are alike.
    """
    rest = [placed for placed in found if not isinstance(placed.content, Inspected)]
    dumps = [placed for placed in found if isinstance(placed.content, Inspected)]
    if not dumps:
        return rest, {}, ()
    unused: dict[str, str] = {}
    rounds: dict[int, _ByRank] = {}
    for number in sorted({_round(placed) for placed in dumps}):
        rounds[number] = _ranked([placed for placed in dumps if _round(placed) == number], layout, unused)
    alike = [_completed(ranks) for ranks in rounds.values()][-2:]
    stands = stalled or (len(alike) == 2 and alike[0] == alike[1] and bool(alike[0]))
    notes: list[str] = []
    ranks = rounds[max(rounds)]
    counters = joined({rank: inspected for rank, (_, inspected) in ranks.items()})
    behind = left_behind(counters) if stands else {}
    for record in counters:
        placed, inspected = ranks[record.rank]
        machine = placed.name.machine or (None if _places(record.rank, layout) else inspected.host or None)
        name = replace(placed.name, rank=record.rank, machine=machine)
        rest.append(Placed(name, record))
        if record.rank in behind:
            rest.append(Placed(name, Logged(findings=(behind[record.rank],))))
    if not stands and (late := _behind(ranks)):
        notes.append(
            f"NCCL Inspector: {counts.counted(len(late), 'rank')} ({format_ranks(late)}) had completed less than others when copied; "
            "copy all files once more, into round-1/, to tell who stands still"
        )
    return rest, unused, tuple(notes)


def _ranked(dumps: Sequence[Placed], layout: Layout, unused: dict[str, str]) -> _ByRank:
    world = layout.world_size or layout.product()
    processes = [(placed, one) for placed in dumps for one in _ranks_in(placed)]
    same = {(one.largest.communicator, one.largest.size) for _, one in processes}
    ranked: _ByRank = {}
    for placed, one in processes:
        rank = world_of(one, world, len(same) == 1)
        if placed.name.rank is not None and len(_ranks_in(placed)) == 1:
            rank = placed.name.rank
        if rank is None:
            what = f"no rank in its name, and its largest communicator, of {one.largest.size}, is not the whole job"
            unused[placed.name.path] = f"{what}: call it rank<N>"
        elif rank in ranked:
            unused[placed.name.path] = f"the dump of rank {rank} is already read from {ranked[rank][0].name.path}"
        else:
            ranked[rank] = placed, one
    return ranked


def _ranks_in(placed: Placed) -> tuple[InspectedRank, ...]:
    return placed.content.ranks if isinstance(placed.content, Inspected) else ()


def _completed(ranks: _ByRank) -> dict[Rank, dict[str, int]]:
    return {rank: inspected.counters.completed for rank, (_, inspected) in ranks.items()}


def _behind(ranks: _ByRank) -> list[Rank]:
    """Ranks that lack an operation which others of their group completed."""
    furthest: dict[str, int] = {}
    for completed in _completed(ranks).values():
        for group, number in completed.items():
            furthest[group] = max(furthest.get(group, number), number)
    return [
        rank
        for rank, completed in _completed(ranks).items()
        if any(number < furthest[group] for group, number in completed.items())
    ]


def _places(rank: Rank, layout: Layout) -> bool:
    return layout.ranks_per_machine is not None or any(rank in ranks for ranks in layout.machines.values())


def _round(placed: Placed) -> int:
    return placed.name.round or 0
