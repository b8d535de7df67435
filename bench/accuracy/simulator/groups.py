"""The process groups of a job, as the framework creates them: their members, and the operations that run in each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hangdog_models.ranks import Rank
from hangdog_models.topology import WORLD, Topology

if TYPE_CHECKING:
    from accuracy.simulator.process import Work

#: Slots in the order in which Megatron's initialize_model_parallel makes their groups.
_CREATION = ("dp", "dp-cp", "cp", "mp", "tp", "pp", "emb", "ep", "edp")
#: What each framework calls them in `group_desc`, which a flight recorder shows.
_MEGATRON = {
    "dp": "DATA_PARALLEL_GROUP",
    "dp-cp": "DATA_PARALLEL_GROUP_WITH_CP",
    "cp": "CONTEXT_PARALLEL_GROUP",
    "mp": "MODEL_PARALLEL_GROUP",
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "emb": "EMBEDDING_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "edp": "EXPERT_DATA_PARALLEL_GROUP",
}
_MESH = {"dp": "mesh_dp_shard", "tp": "mesh_tp", "pp": "mesh_pp", "cp": "mesh_cp"}


@dataclass(eq=False)
class Group:
    """One process group; `name` is what all its members call it, `works` are its operations by number."""

    slot: str
    name: str
    description: str
    ranks: tuple[Rank, ...]
    index: Mapping[int, int] = field(default_factory=dict, repr=False)
    works: dict[object, "Work"] = field(default_factory=dict, repr=False)


def of_job(topology: Topology, framework: str) -> list[dict[str, Group]]:
    """For each rank its groups by slot: those of its topology, the world, and what Megatron derives from them."""
    members: dict[str, Sequence[tuple[Rank, ...]]] = dict(topology.groups)
    if framework.startswith("megatron"):
        if "pp" in topology.groups:
            members["emb"] = [(group[0], group[-1]) for group in topology.groups["pp"]]
        if "ep" in topology.groups:
            members["edp"] = _across(topology)
    descriptions = _MEGATRON if framework.startswith("megatron") else {} if framework == "deepspeed" else _MESH
    groups: list[dict[str, Group]] = [{} for _ in range(topology.world_size)]
    number = 0
    for slot in (WORLD, *_CREATION):
        for ranks in members.get(slot, ()):
            if len(ranks) > 1:
                description = "default_pg" if slot == WORLD else descriptions.get(slot, "undefined")
                group = Group(slot, str(number), description, ranks, {rank: at for at, rank in enumerate(ranks)})
                number += 1
                for rank in ranks:
                    groups[rank][slot] = group
    if framework != "megatron" and framework != "megatron-interleaved":
        _plain(groups, topology)
    return groups


def _across(topology: Topology) -> list[tuple[Rank, ...]]:
    """Ranks that hold the same experts: equal places in the expert groups of one data-parallel group."""
    wide = "dp-cp" if "dp-cp" in topology.groups else "dp"
    found: dict[tuple[Rank, int], list[Rank]] = {}
    for block in topology.groups["ep"]:
        for at, rank in enumerate(block):
            replica = topology.group(wide, rank) or (rank,)
            found.setdefault((replica[0], at), []).append(rank)
    return [tuple(ranks) for ranks in found.values()]


def _plain(groups: list[dict[str, Group]], topology: Topology) -> None:
    """Data parallelism over all ranks uses the default group itself."""
    for of_rank in groups:
        if "dp" in of_rank and len(of_rank["dp"].ranks) == topology.world_size:
            of_rank["dp"] = of_rank[WORLD]
