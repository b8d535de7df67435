"""One rank of a job that holds the whole model on every rank, and waits for its gradients by polling: it never sleeps for long."""

import time

import torch
import torch.distributed as dist
from torch import Tensor

from hangdog.demo.job.model import ModelStage
from hangdog.demo.job.train import LEARNING_RATE, token_loss
from live.trainers.duties import Duties
from live.trainers.outset import Outset, begin

#: Between two looks whether a collective is over. Seconds.
PAUSE_S = 0.001


class Poller(Duties):
    def __init__(self, outset: Outset) -> None:
        self.model = ModelStage(outset.shape, 0, 1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        self.group = dist.new_group()
        super().__init__(outset.folder)

    def train_step(self, batch: Tensor) -> float | None:
        self.optimizer.zero_grad()
        loss = token_loss(self.model(batch[:, :-1]), batch[:, 1:])
        loss.backward()
        gradients = [each.grad for each in self.model.parameters() if each.grad is not None]
        whole = torch.cat([each.flatten() for each in gradients]) / dist.get_world_size()
        work = dist.all_reduce(whole, group=self.group, async_op=True)
        while not work.is_completed():
            time.sleep(PAUSE_S)
        for each, mean in zip(gradients, whole.split([each.numel() for each in gradients]), strict=True):
            each.copy_(mean.view_as(each))
        self.optimizer.step()
        return float(loss)

    def predict(self, batch: Tensor) -> float:
        with torch.no_grad():
            return float(token_loss(self.model(batch[:, :-1]), batch[:, 1:]))

    def state(self) -> dict[str, Tensor]:
        return dict(self.model.state_dict())


def main() -> None:
    outset = begin()
    Poller(outset).run(outset.batches)


if __name__ == "__main__":
    main()
