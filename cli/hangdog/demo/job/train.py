"""One rank of the demo's training job: `python -m hangdog.demo.job.train FOLDER SEED`, with the usual launcher variables set."""

import os
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

from hangdog.demo.job.data import Corpus
from hangdog.demo.job.loop import TrainingLoop, prepare
from hangdog.demo.job.model import ModelStage, Shape, spread
from hangdog.demo.shape import ROWS, SIZES, TOKENS

#: Micro-batches the pipeline cuts a batch into: at least as many as it has stages, here enough to see it pump.
MICRO_BATCHES = 4
#: Mesh dimensions, slowest-varying first: the reverse of how sizes are announced.
MESH = ("pp", "dp", "tp")
#: AdamW's step size; the pattern is learned within some twenty steps.
LEARNING_RATE = 3e-3


def main() -> None:
    rank, seed = int(os.environ["RANK"]), int(sys.argv[2])
    folder = Path(sys.argv[1]) / f"rank-{rank}"
    shape = Shape(tokens=TOKENS)
    corpus = Corpus(shape.vocabulary, TOKENS, ROWS)
    loader = prepare(folder, corpus, seed, replica=rank // SIZES["tp"] % SIZES["dp"])
    mesh = init_device_mesh("cpu", tuple(SIZES[dim] for dim in MESH), mesh_dim_names=MESH)
    DemoTrainer(folder, shape, mesh).run(loader)


class DemoTrainer(TrainingLoop):
    """Trains one pipeline stage, spread over a mesh of `MESH`'s dimensions."""

    def __init__(self, folder: Path, shape: Shape, mesh: DeviceMesh) -> None:
        self.stages = mesh["pp"].size()
        self.stage = mesh["pp"].get_local_rank()
        self.model = spread(ModelStage(shape, self.stage, self.stages), mesh["tp"], mesh["dp"])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        stage = PipelineStage(self.model, self.stage, self.stages, torch.device("cpu"), group=mesh["pp"].get_group())
        self.schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=token_loss)
        super().__init__(folder)

    def train_step(self, batch: Tensor) -> float | None:
        """One forward and backward through the pipeline and an update; the loss, which only the last stage knows."""
        losses: list[Tensor] = []
        self.optimizer.zero_grad()
        inputs = (batch[:, :-1].contiguous(),) if self.stage == 0 else ()
        if self.stage == self.stages - 1:
            self.schedule.step(*inputs, target=batch[:, 1:].contiguous(), losses=losses)
        else:
            self.schedule.step(*inputs)
        self.optimizer.step()
        return float(torch.stack(losses).mean()) if losses else None

    def state(self) -> dict[str, Tensor]:
        return {name: parameter.to_local() for name, parameter in self.model.state_dict().items()}


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of the next tokens: (rows, tokens, vocabulary) against (rows, tokens)."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


if __name__ == "__main__":
    main()
