"""The shape of a simulated job, and the role of each rank in it."""

from dataclasses import dataclass
from typing import NamedTuple

from hangdog_models.topology import Layout, Topology


class Role(NamedTuple):
    """What makes the program of one rank differ from another's: ranks of one role run the same program.

    `loader`: it reads the data itself. `writer`: it writes logs, and where one rank saves for all, checkpoints.
    """

    stage: int
    loader: bool
    writer: bool
    slots: frozenset[str]


@dataclass(frozen=True)
class Job:
    """What is run. `plan` names the steps: "train", "start" (the first, which compiles), "eval" and "save".

    `blocking`: TORCH_NCCL_BLOCKING_WAIT or CUDA_LAUNCH_BLOCKING, as in the published BLOOM stacks. `p2p_sync`:
    Megatron's batch_p2p_sync. `overlap`: gradients are reduced while backward runs. `experts`: layers are mixtures of
    experts. `ring`: context parallelism passes keys on in a ring, else it gathers them. `chunks`: model chunks a stage.
    """

    framework: str
    topology: Topology
    layout: Layout
    plan: tuple[str, ...]
    microbatches: int
    layers: int
    chunks: int = 1
    gloo: bool = False
    blocking: bool = False
    p2p_sync: bool = True
    overlap: bool = True
    experts: bool = False
    ring: bool = True
    old_batches: bool = False

    @property
    def stages(self) -> int:
        return self.layout.sizes.get("pp", 1)

    def role(self, rank: int, slots: frozenset[str]) -> Role:
        """`slots`: the process groups this rank has."""
        topology = self.topology
        world = topology.groups["world"][0]
        at = world[rank]
        stage = topology.stage(at) or 0
        tensor = topology.group("tp", at)
        # Megatron: tensor-parallel rank 0 of the first and the last stage reads, as in XTIMER-8; others: every rank.
        first = not tensor or tensor[0] == at
        loader = first and stage in (0, self.stages - 1) if self.framework.startswith("megatron") else True
        return Role(stage, loader, rank == 0, slots)
