"""The process groups of a job, by the names that programs give them, and the job's shape that follows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hangdog_models.collectives import RankCounters, RasReport
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.topology import DATA, MODEL, Groups, Layout

#: Megatron-Core's descriptions (parallel_state.py) of the groups that have a short name in the field.
_MEGATRON = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "DATA_PARALLEL_GROUP": "dp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "MODEL_PARALLEL_GROUP": MODEL,
    "DATA_PARALLEL_GROUP_WITH_CP": DATA,
}
#: PyTorch's prefix for a dimension of a device mesh.
_MESH = "mesh_"
#: The most kinds of groups that are used; Megatron-Core makes about thirty.
_MOST = 64


def dim_of(description: str) -> str:
    """The dimension that a description means, by the field's short name where it has one."""
    return _MEGATRON.get(description) or description.removeprefix(_MESH)


def with_seen(layout: Layout, records: Iterable[RankCounters], reports: Sequence[RasReport]) -> Layout:
    """The declared layout, with undeclared parts filled in from flight recorders and RAS reports.

    Every judge uses it: the server and a reader of bundles must see one shape of a job.
    """
    return _with_reported(_with_recorded(layout, records), reports)


def _with_recorded(layout: Layout, records: Iterable[RankCounters]) -> Layout:
    """The layout, with the groups and the number of ranks that recorders list, where these are not declared."""
    members: dict[str, set[tuple[Rank, ...]]] = {}
    highest = -1
    met: set[tuple[str, int]] = set()  # by identity: all ranks of a large job list the same long groups
    for record in records:
        for name, ranks in record.members.items():
            dim = dim_of(record.descriptions.get(name, ""))
            if (dim, id(ranks)) not in met:
                met.add((dim, id(ranks)))
                highest = max(highest, *ranks)
                members.setdefault(dim, set()).add(ranks)
    if highest < 0:
        return layout
    world = layout.world_size or layout.product() or highest + 1
    if layout.groups or layout.sizes:
        return replace(layout, world_size=world)
    return replace(layout, world_size=world, groups=_partitions(members, world))


def _with_reported(layout: Layout, reports: Sequence[RasReport]) -> Layout:
    """The layout, with the number of ranks and the hosts that the communicator of all ranks lists, where not declared.

    Where the job uses more GPUs than the largest communicator has ranks, no communicator is of all ranks, and numbers in
    them are no ranks of the job.

    Redacted hosts are not used: names without a letter or digit, or one name for two GPUs with one number.
    """
    last = reports[-1].communicators if reports else ()
    gpus = reports[-1].gpus if reports else 0
    world = layout.world_size or layout.product() or max((one.size for one in last), default=0)
    if not (layout.world_size or layout.product()):
        world = max(world, gpus)
    if not world or world > MAX_RANK:
        return layout
    found: dict[str, set[Rank]] = {}
    devices: dict[tuple[str, int | None], set[int]] = {}
    placed = {rank for ranks in layout.machines.values() for rank in ranks}
    for member in (member for one in last if one.size == world for member in one.members):
        if 0 <= member.number < world and any(map(str.isalnum, member.host)) and Rank(member.number) not in placed:
            found.setdefault(member.host, set()).add(Rank(member.number))
            devices.setdefault((member.host, member.device), set()).add(member.number)
    hosts = {} if layout.ranks_per_machine or layout.machines else found
    once = len({rank for ranks in hosts.values() for rank in ranks}) == sum(map(len, hosts.values()))
    apart = once and all(len(numbers) == 1 for (_, device), numbers in devices.items() if device is not None)
    machines = {host: tuple(sorted(ranks)) for host, ranks in sorted(hosts.items())} if apart else {}
    return replace(layout, world_size=world, machines={**layout.machines, **machines})


def _partitions(members: Mapping[str, set[tuple[Rank, ...]]], world: int) -> dict[str, Groups]:
    """The kinds in which no rank is in two groups; each partition once, under its shortest name."""
    found: dict[str, Groups] = {}
    known: set[Groups] = set()
    for dim in sorted(members, key=lambda dim: (dim not in _MEGATRON.values(), len(dim), dim)):
        groups = tuple(sorted(ranks for ranks in members[dim] if len(ranks) > 1))
        ranks = [rank for group in groups for rank in group]
        apart = len(set(ranks)) == len(ranks)
        if dim and groups and apart and groups not in known and len(groups[0]) < world and len(found) < _MOST:
            known.add(groups)
            found[dim] = groups
    if DATA in found and "cp" not in found and "dp" not in found:
        found["dp"] = found.pop(DATA)  # without context parallelism it is the data-parallel one
    return found
