"""Places the ranks of a small job: tensor (or expert), pipeline and data parallel, with the collectives between them."""

# mypy: allow-subclassing-any
# torch is untyped for us, so its classes are Any to mypy.

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


class ParallelLayout:
    """One rank's place. A single process has no groups, and all of this does nothing."""

    def __init__(self, asked: dict[str, Any] | None, device: str) -> None:
        self.rank, self.tp, self.pp, self.dp = 0, 1, 1, 1
        self.tensor: Any = None
        self.data: Any = None
        if asked is not None:
            self.rank, self.tp, self.pp, self.dp = (asked[name] for name in ("rank", "tp", "pp", "dp"))
            join(asked, device)
            self._groups()
        self.tp_at = self.rank % self.tp
        self.dp_at = self.rank // self.tp % self.dp
        self.stage = self.rank // (self.tp * self.dp)
        self.stride = self.tp * self.dp

    def _groups(self) -> None:
        """Every rank makes every group, in the same order, as torch demands."""
        world = range(self.tp * self.pp * self.dp)
        for wanted, peers in (
            ("tensor", {rank: rank // self.tp for rank in world}),
            ("data", {rank: (rank % self.tp, rank // (self.tp * self.dp)) for rank in world}),
        ):
            for key in dict.fromkeys(peers.values()):
                members = [rank for rank in world if peers[rank] == key]
                group = dist.new_group(members)
                if self.rank in members:
                    setattr(self, wanted, group)

    @property
    def first(self) -> bool:
        return self.stage == 0

    @property
    def last(self) -> bool:
        return self.stage == self.pp - 1

    def receive(self, like: Any, step: int) -> Any:
        """What the stage before (step -1) or after (step 1) sends."""
        dist.recv(like, self.rank + step * self.stride)
        return like

    def send(self, tensor: Any, step: int) -> None:
        dist.send(tensor.contiguous(), self.rank + step * self.stride)


class Enter(torch.autograd.Function):
    """Into a part that each tensor-parallel rank computes a share of: gradients are summed on the way back."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, group: Any) -> Any:
        ctx.group = group
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        gradient = gradient.contiguous()
        if ctx.group is not None:
            dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Leave(torch.autograd.Function):
    """Out of such a part: the shares are summed."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, group: Any) -> Any:
        tensor = tensor.contiguous().clone()
        if group is not None:
            dist.all_reduce(tensor, group=group)
        return tensor

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


def join(asked: dict[str, Any], device: str) -> None:
    """Meets the other ranks at the address given; gloo for processes on the CPU, NCCL for accelerators."""
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.startswith("cuda") else "gloo",
        init_method=asked["meet"],
        rank=asked["rank"],
        world_size=asked["world"],
        timeout=timedelta(seconds=asked["patience_s"]),
    )
