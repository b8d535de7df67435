"""Which machine each rank of one job belongs to: the first one that announced it, for as long as it goes on to."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from hangdog_models.counts import counted
from hangdog_models.ranks import Rank, format_ranks
from hangdog_server.protocol.jobs import AnnouncedJob

#: Contradictions that are spelt out; of more only the number is told.
SHOWN = 3


@dataclass(slots=True)
class Claims:
    """What the machines of a job announce of it now.

    A machine that ends a rank, or whose agent is gone, gives it up: a job may start again elsewhere at once. Then the next
    machine that claims it has it.
    """

    announced: dict[str, AnnouncedJob] = field(default_factory=dict)
    #: How many machines tell each size of the job, the size first that was told first.
    _sizes: Counter[int] = field(default_factory=Counter)
    _holders: dict[Rank, str] = field(default_factory=dict)
    _waiting: dict[Rank, list[str]] = field(default_factory=dict)

    def announce(self, machine: str, local: AnnouncedJob) -> None:
        """A machine says which ranks it runs now."""
        before = self.announced.get(machine)
        had = frozenset(before.ranks) if before is not None else frozenset[Rank]()
        for rank in had.difference(local.ranks):
            self._free(rank, machine)
        for rank in local.ranks:
            if rank in had:
                continue
            if rank in self._holders:
                self._waiting.setdefault(rank, []).append(machine)
            else:
                self._holders[rank] = machine
        self._count(before, local)
        self.announced[machine] = local

    def withdraw(self, machine: str) -> None:
        """A machine runs nothing of the job any more, or nobody speaks for it."""
        if (before := self.announced.pop(machine, None)) is not None:
            for rank in before.ranks:
                self._free(rank, machine)
            self._count(before, None)

    def _count(self, before: AnnouncedJob | None, now: AnnouncedJob | None) -> None:
        old, new = before.world_size if before else None, now.world_size if now else None
        if old == new:
            return
        if new is not None:
            self._sizes[new] += 1
        if old is not None:
            self._sizes[old] -= 1
            if not self._sizes[old]:
                del self._sizes[old]

    def _free(self, rank: Rank, machine: str) -> None:
        waiting = self._waiting.get(rank, [])
        if self._holders.get(rank) != machine:
            waiting.remove(machine)
        elif waiting:
            self._holders[rank] = waiting.pop(0)
        else:
            del self._holders[rank]
        if not waiting:
            self._waiting.pop(rank, None)

    def holds(self, rank: Rank) -> str:
        """The machine that a rank belongs to; empty when nobody announces it."""
        return self._holders.get(rank, "")

    def world(self) -> int | None:
        """How many ranks the job has, by most of its machines; of as many, by those that said so first. None: nobody says."""
        return self._sizes.most_common(1)[0][0] if self._sizes else None

    def owned(self) -> dict[str, AnnouncedJob]:
        """What belongs to each machine, by name: no rank beyond the job's size, nor of a machine that tells another size.

        A machine that announces ranks of which none belongs to it is left out.
        """
        world, found = self.world(), {}
        for machine, local in self.announced.items():
            ranks = self._own(machine, local, world)
            if ranks or (not local.ranks and local.world_size in (None, world)):
                found[machine] = local if len(ranks) == len(local.ranks) else replace(local, ranks=ranks)
        return dict(sorted(found.items()))

    def own(self, machine: str) -> tuple[Rank, ...]:
        """The ranks that belong to a machine: without going over all others, for it is asked with every pulse."""
        local = self.announced.get(machine)
        return self._own(machine, local, self.world()) if local is not None else ()

    def _own(self, machine: str, local: AnnouncedJob, world: int | None) -> tuple[Rank, ...]:
        if local.world_size is not None and local.world_size != world:
            return ()
        return tuple(rank for rank in local.ranks if self._holders[rank] == machine and _inside(rank, world))

    def conflicts(self) -> tuple[str, ...]:
        """What machines contradict each other about, in words; nothing acts by itself on a job of which there is anything."""
        found = list(self._contradictions())
        more = (f"and {len(found) - SHOWN} more like it",) if len(found) > SHOWN else ()
        return (*found[:SHOWN], *more)

    def _contradictions(self) -> Iterator[str]:
        pairs: dict[tuple[str, str], list[Rank]] = {}
        for rank, waiting in sorted(self._waiting.items()):
            for machine in waiting:
                pairs.setdefault((machine, self._holders[rank]), []).append(rank)
        for (machine, holder), ranks in sorted(pairs.items()):
            yield f"{machine} claims {_ranks(ranks)}, which {holder} announced first"
        world = self.world()
        for machine, local in sorted(self.announced.items()):
            if local.world_size is not None and local.world_size != world:
                yield f"{machine} says that the job has {local.world_size} ranks, the others say {world}"
            elif beyond := [rank for rank in local.ranks if not _inside(rank, world)]:
                yield f"{machine} announces {_ranks(beyond)} of a job of {counted(world or 0, 'rank')}"
            if local.contested:
                yield f"several containers on {machine} claim {_ranks(local.contested)}"


def overlap(stated: Mapping[str, AnnouncedJob]) -> Claims:
    """The claims of machines of which nobody knows who came first: they stand in the order given."""
    claims = Claims()
    for machine, local in stated.items():
        claims.announce(machine, local)
    return claims


def _inside(rank: Rank, world: int | None) -> bool:
    return world is None or rank < world


def _ranks(ranks: list[Rank] | tuple[Rank, ...]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ranks(ranks)}"
