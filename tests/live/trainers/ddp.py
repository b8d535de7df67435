"""One rank of a job that holds the whole model on every rank and averages gradients (DistributedDataParallel)."""

# The training group is not the default one: what a rank skips there must not be mistaken for a part of this.

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from hangdog.demo.job.model import ModelStage
from hangdog.demo.job.train import LEARNING_RATE, token_loss
from live.trainers.duties import Duties
from live.trainers.outset import Outset, begin


class Replica(Duties):
    def __init__(self, outset: Outset) -> None:
        self.model = DistributedDataParallel(ModelStage(outset.shape, 0, 1), process_group=dist.new_group())
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
        return dict(self.model.module.state_dict())


def main() -> None:
    outset = begin()
    Replica(outset).run(outset.batches)


if __name__ == "__main__":
    main()
