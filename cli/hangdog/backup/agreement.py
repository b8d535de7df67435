"""What all ranks conclude from the same reports, so that they agree without asking again: pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hangdog.backup.shard_memory import Shard
from hangdog_models.ranks import Rank, format_ranks


@dataclass(frozen=True, slots=True)
class RankReport:
    """What a rank says before a copy. `copies` are those that it has in both places; `fresh` is rank 0's name for the next."""

    machine: str
    address: str
    fresh: str
    copies: tuple[str, ...] = ()
    waits: str = ""


@dataclass(frozen=True, slots=True)
class NextCopy:
    """The name of the copy to make, and of the one to keep meanwhile; `waits` says why none is made now."""

    name: str
    keep: str
    waits: str


@dataclass(frozen=True, slots=True)
class WholeCopy:
    """A copy that is whole: for each rank its shard, and the addresses that have it."""

    copy: str
    step: int
    sources: tuple[tuple[Shard, tuple[str, ...]], ...]


def next_copy(reports: Sequence[RankReport]) -> NextCopy:
    """All copy, or nobody does: a copy that one rank lacks is worth nothing."""
    waits = next((f"rank {rank} {report.waits}" for rank, report in enumerate(reports) if report.waits), "")
    return NextCopy(reports[0].fresh, kept_everywhere(reports), waits)


def kept_everywhere(reports: Sequence[RankReport]) -> str:
    """The newest copy that every rank has in both places; empty where there is none."""
    common = set[str].intersection(*(set(report.copies) for report in reports))
    return next((copy for copy in reversed(reports[0].copies) if copy in common), "")


def misplaced(reports: Sequence[RankReport], holders: Sequence[int]) -> tuple[Rank, ...]:
    """The ranks whose backup would lie on their own machine, and be lost with it."""
    return tuple(Rank(rank) for rank, report in enumerate(reports) if reports[holders[rank]].machine == report.machine)


def whole_copies(held: Mapping[str, Sequence[Shard]], world: int) -> tuple[list[WholeCopy], str]:
    """The whole copies among what each address has, newest first, and what the newest of the others lacks."""
    copies: dict[tuple[int, str], dict[int, tuple[Shard, list[str]]]] = {}
    for address, shards in held.items():
        for shard in shards:
            if shard.world == world and shard.rank < world:
                sources = copies.setdefault((shard.step, shard.copy), {})
                first, addresses = sources.setdefault(shard.rank, (shard, []))
                if shard == first:
                    addresses.append(address)
    whole, lack = [], ""
    for (step, copy), sources in sorted(copies.items(), reverse=True):
        if len(sources) == world:
            found = tuple((sources[rank][0], tuple(sources[rank][1])) for rank in range(world))
            whole.append(WholeCopy(copy, step, found))
        elif not lack:
            missing = tuple(Rank(rank) for rank in range(world) if rank not in sources)
            lack = f"step {step}: no machine has the shard of ranks {format_ranks(missing)}"
    return whole, lack or ("" if whole else f"no machine has a shard of a job of {world} ranks")
