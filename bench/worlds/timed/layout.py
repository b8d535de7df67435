"""How the ranks of a job lie on machines and in parallel groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from hangdog_models.ranks import Rank


@dataclass(frozen=True)
class Layout:
    """Ranks on machines, and the communicators of a job: each name is its dimension and a number."""

    machines: tuple[str, ...]
    per_machine: int
    sizes: Mapping[str, int]
    groups: Mapping[str, tuple[Rank, ...]]

    @property
    def world_size(self) -> int:
        return len(self.machines) * self.per_machine

    @cached_property
    def ranks(self) -> tuple[Rank, ...]:
        return tuple(map(Rank, range(self.world_size)))

    def machine(self, rank: Rank) -> str:
        return self.machines[rank // self.per_machine]

    def ranks_on(self, machine: str) -> list[Rank]:
        return [rank for rank in self.ranks if self.machine(rank) == machine]

    def group(self, dim: str, rank: Rank) -> str:
        """The communicator of a rank along a dimension."""
        return self._of[dim, rank]

    def size(self, dim: str) -> int:
        return len(self.groups[self.group(dim, self.ranks[0])])

    def has(self, dim: str) -> bool:
        """Whether several ranks share a communicator along a dimension."""
        return (dim, self.ranks[0]) in self._of and self.size(dim) > 1

    def crosses(self, group: str) -> bool:
        """Whether a communicator spans several machines."""
        return len({self.machine(rank) for rank in self.groups[group]}) > 1

    def place(self, rank: Rank) -> tuple[int, int, int]:
        """The index of a rank along tensor, data and pipeline parallelism."""
        tensor, data = self.sizes.get("tp", 1), self.sizes["dp"]
        return rank % tensor, rank // tensor % data, rank // (tensor * data)

    def stage(self, rank: Rank, by: int) -> Rank | None:
        """The rank so many pipeline stages further on; None beyond the ends."""
        stride = self.sizes.get("tp", 1) * self.sizes["dp"]
        other = Rank(rank + by * stride)
        return other if 0 <= other < self.world_size else None

    def reads_data(self, rank: Rank) -> bool:
        """Whether a rank of a pipeline has a data loader: the first of its tensor group, on the first and the last stage."""
        tensor, _, stage = self.place(rank)
        return tensor == 0 and stage in (0, self.sizes.get("pp", 1) - 1)

    @cached_property
    def _of(self) -> Mapping[tuple[str, Rank], str]:
        return {(dimension(name), rank): name for name, ranks in self.groups.items() for rank in ranks}


def dimension(group: str) -> str:
    """The dimension of a communicator, which its name begins with."""
    return group.rstrip("0123456789")


def replicated(machines: tuple[str, ...], per_machine: int, engine: int = 1) -> Layout:
    """Data parallelism alone; `engine` neighbours share a tensor-parallel inference engine beside it."""
    ranks = tuple(map(Rank, range(len(machines) * per_machine)))
    groups = {"dp0": ranks, "world": ranks, "second": ranks}
    if engine > 1:
        groups |= {f"tp{at}": ranks[at * engine : (at + 1) * engine] for at in range(len(ranks) // engine)}
    return Layout(machines, per_machine, {"tp": engine, "dp": len(ranks)} if engine > 1 else {"dp": len(ranks)}, groups)


def pipelined(machines: tuple[str, ...], per_machine: int, tensor: int, stages: int, experts: int) -> Layout:
    """Tensor, data, pipeline and expert parallelism, tensor varying fastest and pipeline slowest, as Megatron lays them out."""
    ranks = tuple(map(Rank, range(len(machines) * per_machine)))
    data = len(ranks) // tensor // stages

    def rank(t: int, d: int, p: int) -> Rank:
        return Rank(t + tensor * (d + data * p))

    tensors, replicas, depth = range(tensor), range(data), range(stages)
    groups: dict[str, tuple[Rank, ...]] = {"world": ranks, "second": ranks}
    for p in depth:
        groups |= {f"tp{p * data + d}": tuple(rank(t, d, p) for t in tensors) for d in replicas}
        groups |= {f"dp{p * tensor + t}": tuple(rank(t, d, p) for d in replicas) for t in tensors}
    for d in replicas:
        groups[f"mp{d}"] = tuple(rank(t, d, p) for p in depth for t in tensors)
        for t in tensors:
            groups[f"pp{d * tensor + t}"] = tuple(rank(t, d, p) for p in depth)
            if stages > 1:
                groups[f"emb{d * tensor + t}"] = (rank(t, d, 0), rank(t, d, stages - 1))
    if experts > 1:
        blocks = data // experts
        for p in depth:
            for t in tensors:
                for b in range(blocks):
                    of = tuple(rank(t, b * experts + e, p) for e in range(experts))
                    groups[f"ep{(p * tensor + t) * blocks + b}"] = of
    return Layout(machines, per_machine, {"tp": tensor, "ep": experts, "dp": data, "pp": stages}, groups)
