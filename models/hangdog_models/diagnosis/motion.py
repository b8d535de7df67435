"""What moved between the rounds: a rank that leaves a wait proves that the job makes progress."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.activity import Standing
from hangdog_models.ranks import Rank

Look = Mapping[Rank, Standing]

#: A collective that completes frees at least two ranks; one alone may be a torn non-blocking read of its stack.
FREED_AT_LEAST = 2


@dataclass(frozen=True, slots=True)
class Motion:
    """`still`: stack equal, line for line, in every round (two or more). `moving`: it changed. A rank may be in neither.

    `freed`: ranks that left a wait between the last two rounds. `alive`: enough of them to know that the job goes on.
    """

    rounds: int
    still: frozenset[Rank]
    moving: frozenset[Rank]
    freed: tuple[Rank, ...]

    @property
    def known(self) -> bool:
        return self.rounds > 1

    @property
    def alive(self) -> bool:
        return len(self.freed) >= FREED_AT_LEAST


def observe(looks: Sequence[Look]) -> Motion:
    """Compares the looks at a job, oldest first."""
    seen: dict[Rank, list[Standing]] = {}
    for look in looks:
        for rank, standing in look.items():
            if standing.frames:
                seen.setdefault(rank, []).append(standing)
    several = {rank: standings for rank, standings in seen.items() if len(standings) > 1}
    still = frozenset(rank for rank, them in several.items() if all(one.frames == them[0].frames for one in them))
    freed = []
    if len(looks) > 1:
        before, after = looks[-2], looks[-1]
        for rank, standing in before.items():
            later = after.get(rank)
            if standing.waits and later is not None and later.frames and later.place != standing.place:
                freed.append(rank)
    return Motion(len(looks), still, frozenset(several) - still, tuple(sorted(freed)))


def always(looks: Sequence[Look], ranks: Sequence[Rank]) -> tuple[Rank, ...]:
    """Those of `ranks` that waited for nobody in every look they were seen in: the ones a slow job waits for each time."""
    return tuple(
        rank for rank in ranks if all(not look[rank].waits for look in looks if rank in look and look[rank].frames)
    )
