"""Tells several sets of ranks apart under one name: trainers and rollout workers of one Slurm job, two torchruns of one user.

Each set has a world of its own, with a rank 0, and one may hang while the other lives. A set is known by where its ranks meet,
or by its Slurm step. A job is one set for as long as nothing contradicts that: an elastic restart may meet elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hangdog_models.ranks import Rank

#: Characters of a name that says which set it is.
_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Claim:
    """A living trainer's claim to a rank of a job, given by its key; `part` is that of its set, empty where nothing tells.

    `world` is 0 where it is not known. `orphan`: whoever started it is gone.
    """

    job: str
    part: str
    rank: Rank
    world: int
    orphan: bool


def several(claims: Iterable[Claim]) -> frozenset[str]:
    """The jobs under whose name there are several sets: two have the same rank, or worlds of two sizes.

    What nobody looks after any more, beside ranks that somebody does, is left of an earlier start, and no set.
    """
    jobs: dict[str, dict[str, list[Claim]]] = {}
    for claim in claims:
        if claim.part:
            jobs.setdefault(claim.job, {}).setdefault(claim.part, []).append(claim)
    found = set()
    for job, parts in jobs.items():
        orphaned = [part for part, members in parts.items() if all(one.orphan for one in members)]
        sets = [members for part, members in parts.items() if part not in orphaned or len(orphaned) == len(parts)]
        ranks = [rank for members in sets for rank in {one.rank for one in members}]
        worlds = {one.world for members in sets for one in members} - {0}
        if len(sets) > 1 and (len(set(ranks)) < len(ranks) or len(worlds) > 1):
            found.add(job)
    return frozenset(found)


def called(job: str, part: str, named: bool) -> str:
    """What one of several sets is called, the same on all of its machines."""
    port = part.rpartition(":")[2]
    if not named and port.isdigit():
        return f"port-{port}"  # as any job is of which nothing else is known
    return f"{job}#{part.replace(' ', '-')}"[:_MOST_CHARACTERS]
