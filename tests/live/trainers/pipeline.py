"""One rank of a job that is one pipeline: every rank holds one stage (torch.distributed.pipelining, 1F1B or GPipe)."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from hangdog.demo.job.model import ModelStage
from hangdog.demo.job.train import LEARNING_RATE, token_loss
from hangdog.demo.shape import ROWS
from live.trainers.duties import Duties
from live.trainers.outset import Outset, begin


class Segment(Duties):
    def __init__(self, outset: Outset) -> None:
        self.stages, self.stage = outset.sizes["pp"], dist.get_rank()
        self.model = ModelStage(outset.shape, self.stage, self.stages)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        stage = PipelineStage(self.model, self.stage, self.stages, torch.device("cpu"), group=dist.new_group())
        # 1F1B needs as many micro-batches as there are stages, and a batch has one for each of its rows at most
        schedule = Schedule1F1B if self.stages <= ROWS else ScheduleGPipe
        self.schedule = schedule(stage, ROWS, loss_fn=token_loss)
        super().__init__(outset.folder)

    def train_step(self, batch: Tensor) -> float | None:
        self.optimizer.zero_grad()
        losses = self.pump(batch, self.schedule.step)
        self.optimizer.step()
        return losses

    def predict(self, batch: Tensor) -> float:
        return self.pump(batch, self.schedule.eval) or 0.0

    def pump(self, batch: Tensor, through) -> float | None:  # type: ignore[no-untyped-def]  # torch is untyped for us
        """Sends a batch through the pipeline; the loss, which only the last stage knows."""
        losses: list[Tensor] = []
        inputs = (batch[:, :-1].contiguous(),) if self.stage == 0 else ()
        if self.stage == self.stages - 1:
            through(*inputs, target=batch[:, 1:].contiguous(), losses=losses)
        else:
            through(*inputs)
        return float(torch.stack(losses).mean()) if losses else None

    def state(self) -> dict[str, Tensor]:
        return dict(self.model.state_dict())


def main() -> None:
    outset = begin()
    Segment(outset).run(outset.batches)


if __name__ == "__main__":
    main()
