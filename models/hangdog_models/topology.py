"""Which ranks form which process groups, and which machine and switch each rank runs on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from hangdog_models.ranks import Rank

#: Parallel dimensions in the field's conventional order, fastest-varying first (Megatron-Core's default).
DEFAULT_ORDER = ("tp", "cp", "ep", "dp", "pp")
#: The dimension of the group of all ranks.
WORLD = "world"
#: Tensor times pipeline: the ranks that together hold one replica of the model (Megatron's model-parallel group).
MODEL = "mp"
#: Data times context: the ranks that sum gradients, for each holds other tokens.
DATA = "dp-cp"
#: Groups that exist only if a job splits both ways, with their replacement if it does not.
NARROWER = {DATA: "dp"}

Groups = tuple[tuple[Rank, ...], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A job's declared shape; every part may be absent (None or empty)."""

    world_size: int | None = None
    order: tuple[str, ...] = DEFAULT_ORDER
    sizes: Mapping[str, int] = field(default_factory=dict)
    ranks_per_machine: int | None = None
    groups: Mapping[str, Groups] = field(default_factory=dict)
    machines: Mapping[str, tuple[Rank, ...]] = field(default_factory=dict)
    switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def product(self) -> int | None:
        """The product of the declared sizes, in ranks (`ep` multiplies nothing); None if no size is declared."""
        return prod(size for dim, size in self.sizes.items() if dim != "ep") if self.sizes else None


@dataclass(frozen=True)
class Topology:
    """The shape of a job: `groups[dim]` partitions the ranks with such a group, `machines` lists each machine's ranks."""

    world_size: int
    groups: Mapping[str, Groups]
    machines: Mapping[str, tuple[Rank, ...]]
    switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def _machine_of(self) -> list[str | None]:
        found: list[str | None] = [None] * self._places
        for name, ranks in self.machines.items():
            for rank in ranks:
                found[rank] = name
        return found

    @cached_property
    def _group_of(self) -> dict[str, list[tuple[Rank, ...] | None]]:
        """For each dimension the group of every rank, as a list by rank: a dictionary of a million costs ten times
        that.
        """
        found: dict[str, list[tuple[Rank, ...] | None]] = {}
        for dim, groups in self.groups.items():
            of = found[dim] = [None] * self._places
            for group in groups:
                for rank in group:
                    of[rank] = group
        return found

    @cached_property
    def _places(self) -> int:
        """The number of ranks to make room for: explicit groups and machines may name more than the world has."""
        named = (
            rank for groups in (self.machines.values(), *self.groups.values()) for ranks in groups for rank in ranks
        )
        return 1 + max(named, default=-1)

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(self.groups)

    def machine(self, rank: Rank) -> str | None:
        return self._machine_of[rank] if rank < self._places else None

    @cached_property
    def _machine_by_host(self) -> dict[str, str | None]:
        """Machines by the first part of their names; None if two share it."""
        found: dict[str, str | None] = {}
        for name in self.machines:
            short = name.partition(".")[0]
            found[short] = None if short in found else name
        return found

    def machine_called(self, host: str) -> str | None:
        """The machine of the job with this host name, with or without its domain; None if there is none."""
        if host in self.machines:
            return host
        short, _, domain = host.partition(".")
        found = None if short.isdigit() else self._machine_by_host.get(short)
        return found if found is not None and (not domain or "." not in found) else None

    def machines_of(self, ranks: Iterable[Rank]) -> tuple[str, ...]:
        """The known machines of these ranks, in the topology's order."""
        wanted = {self.machine(rank) for rank in ranks}
        return tuple(name for name in self.machines if name in wanted)

    def group(self, dim: str, rank: Rank) -> tuple[Rank, ...] | None:
        """The members, in rank order, of the group of `rank` along `dim`; None if it has none."""
        of = self._group_of.get(dim)
        return of[rank] if of is not None and rank < self._places else None

    def stage(self, rank: Rank) -> int | None:
        """The pipeline stage of a rank, 0 first; None without pipeline groups."""
        group = self.group("pp", rank)
        return group.index(rank) if group else None


def build(layout: Layout, highest_rank: Rank | None) -> tuple[Topology, tuple[str, ...]]:
    """The topology of a job from its declared layout and the ranks seen; also notes on what does not fit.

    A declaration that contradicts the ranks seen is not trusted. Then only explicit groups and machines are used.
    """
    notes: list[str] = []
    product = layout.product()
    seen = highest_rank + 1 if highest_rank is not None else 0
    world = layout.world_size or product or seen
    if seen > world:
        notes.append(f"rank {seen - 1} was seen, but the job is declared with {world} ranks: taken as {seen} ranks")
        world = seen
    if product is not None and product != world:
        sizes = " x ".join(f"{dim} {size}" for dim, size in layout.sizes.items() if dim != "ep")
        notes.append(f"[topology] {sizes} makes {product} ranks, but the job has {world}: its groups are not used")
    trusted = product == world
    groups: dict[str, Groups] = _derived(layout, world) if trusted else {}
    groups.update(layout.groups)
    groups.setdefault(WORLD, (tuple(Rank(rank) for rank in range(world)),))
    return Topology(world, groups, _placed(layout, world), layout.switches), tuple(notes)


def _derived(layout: Layout, world: int) -> dict[str, Groups]:
    """Groups along each declared dimension of size 2 or more, and the model-parallel group (tp x pp)."""
    order = [dim for dim in layout.order if dim != "ep"] + [
        d for d in layout.sizes if d not in layout.order and d != "ep"
    ]
    strides: dict[str, int] = {}
    stride = 1
    for dim in order:
        strides[dim] = stride
        stride *= layout.sizes.get(dim, 1)

    def corners(dims: Iterable[str]) -> list[Rank]:
        """The ranks that are first along every dimension but these, ascending."""
        found = [Rank(0)]
        for dim in dims:
            steps = range(0, layout.sizes.get(dim, 1) * strides[dim], strides[dim])
            found = [Rank(corner + step) for corner in found for step in steps]
        return sorted(found)

    def along(*dims: str) -> Groups:
        members = corners(dims)  # each group is the first one, shifted: cheap for a million ranks
        firsts = corners(dim for dim in order if dim not in dims)
        return tuple(tuple(map(first.__add__, members)) for first in firsts)  # type: ignore[arg-type]  # sums of ranks are ranks

    groups = {dim: along(dim) for dim in order if layout.sizes.get(dim, 1) > 1}
    if "tp" in groups and "pp" in groups:
        groups[MODEL] = along("tp", "pp")
    if "cp" in groups and "dp" in groups:
        groups[DATA] = along("dp", "cp")
    expert = layout.sizes.get("ep", 1)
    if expert > 1:  # ep splits dp x cp into contiguous blocks and multiplies nothing
        wide = [dim for dim in ("cp", "dp") if dim in strides]
        replicas = along(*wide) if wide else ()
        groups["ep"] = tuple(group[at : at + expert] for group in replicas for at in range(0, len(group), expert))
        if not any(len(group) > 1 for group in groups["ep"]):
            del groups["ep"]
    return groups


def _placed(layout: Layout, world: int) -> dict[str, tuple[Rank, ...]]:
    """The ranks of each machine: as declared, the rest by `ranks_per_machine` under the name `node-<k>`."""
    machines = dict(layout.machines)
    declared = {rank for ranks in machines.values() for rank in ranks}
    per = layout.ranks_per_machine
    if per:
        for rank in range(world):
            if rank not in declared:
                name = f"node-{rank // per}"
                machines[name] = (*machines.get(name, ()), Rank(rank))
    return machines
