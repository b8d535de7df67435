"""One rank of a job whose model is in pieces, sharded over all ranks (FSDP2) or cut by matrix (tensor parallel)."""

import sys

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from hangdog.demo.job.model import ModelStage, cut, shard
from hangdog.demo.job.train import LEARNING_RATE, token_loss
from live.trainers.duties import Duties
from live.trainers.outset import Outset, begin


class Piece(Duties):
    def __init__(self, outset: Outset, model: ModelStage) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        super().__init__(outset.folder)

    def train_step(self, batch: Tensor) -> float | None:
        self.optimizer.zero_grad()
        loss = token_loss(self.model(batch[:, :-1]), batch[:, 1:])
        loss.backward()
        self.optimizer.step()
        return float(loss)

    def predict(self, batch: Tensor) -> float:
        with torch.no_grad():
            return float(token_loss(self.model(batch[:, :-1]), batch[:, 1:]))

    def state(self) -> dict[str, Tensor]:
        entries = self.model.state_dict().items()
        return {name: entry.to_local() if isinstance(entry, DTensor) else entry for name, entry in entries}


def fsdp() -> None:
    outset = begin()
    Piece(outset, shard(ModelStage(outset.shape, 0, 1), _mesh("dp"))).run(outset.batches)


def tensor() -> None:
    outset = begin()
    Piece(outset, cut(ModelStage(outset.shape, 0, 1), _mesh("tp"))).run(outset.batches)


def _mesh(dim: str) -> DeviceMesh:
    """All ranks, in a group of its own: what a rank skips in the default one must not be mistaken for a part of this."""
    return DeviceMesh.from_group(dist.new_group(), "cpu", mesh_dim_names=(dim,))


if __name__ == "__main__":
    {"fsdp": fsdp, "tensor": tensor}[sys.argv[3]]()
