"""One rank of the demo's training job: `python -m hangdog.demo.job.train FOLDER`, with the usual launcher variables set."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

from hangdog.demo.job.data import Corpus, batches, stage_shards
from hangdog.demo.job.journal import Journal
from hangdog.demo.job.memory import Memory
from hangdog.demo.job.model import Shape, Stage, spread
from hangdog.demo.job.settings import Settings, read_settings
from hangdog.demo.prctl import die_with, let_others_look
from hangdog.demo.shape import ROWS, SIZES, TOKENS

#: Micro-batches the pipeline cuts a batch into: at least as many as it has stages, here enough to see it pump.
MICRO_BATCHES = 4
#: Mesh dimensions, slowest-varying first: the reverse of how sizes are announced.
MESH = ("pp", "dp", "tp")
#: AdamW's step size; the pattern is learned within some twenty steps.
LEARNING_RATE = 3e-3


def main() -> None:
    let_others_look()
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    shape = Shape(tokens=TOKENS)
    corpus = Corpus(shape.vocabulary, TOKENS, ROWS)
    shards = folder / f"rank-{rank}" / "shards"
    stage_shards(shards, corpus, seed, replica=rank // SIZES["tp"] % SIZES["dp"])
    # Forked before gloo starts its threads: a lock that one of them held at that moment would stay locked in the worker.
    loader = batches(shards, corpus, _worker_preparation())
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", tuple(SIZES[dim] for dim in MESH), mesh_dim_names=MESH)
    Trainer(folder / f"rank-{rank}", shape, mesh).run(loader)


def _worker_preparation() -> Callable[[int], None]:
    trainer = os.getpid()

    def prepare(_worker: int) -> None:
        die_with(trainer)
        let_others_look()

    return prepare


class Trainer:
    """The training loop of one rank; it tells each finished step on stdout as a line of JSON."""

    def __init__(self, folder: Path, shape: Shape, mesh: DeviceMesh) -> None:
        self.folder = folder
        self.stages = mesh["pp"].size()
        self.stage = mesh["pp"].get_local_rank()
        self.model = spread(Stage(shape, self.stage, self.stages), mesh["tp"], mesh["dp"])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        stage = PipelineStage(self.model, self.stage, self.stages, torch.device("cpu"), group=mesh["pp"].get_group())
        self.schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=_loss)
        self.journal = Journal(folder / "journal.log")
        self.memory = Memory()

    def run(self, loader: Iterator[Tensor]) -> None:
        """Trains until somebody ends the process."""
        step = 0
        while True:
            step += 1
            began = time.perf_counter()
            settings = read_settings(self.folder / "settings.json")
            loss = self.train_step(next(loader))
            if step % settings.report_every == 0:
                loss = self.report(loss)
            if step % settings.save_every == 0:
                self.save()
            self.between_steps(step, loss, settings)
            progress = {"step": step, "loss": loss, "seconds": round(time.perf_counter() - began, 3)}
            print(json.dumps(progress), flush=True)

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

    def report(self, loss: float | None) -> float:
        """The loss averaged over all ranks that know one; a collective of the whole job."""
        total = torch.tensor([loss or 0.0, 0.0 if loss is None else 1.0])
        dist.all_reduce(total)
        return float(total[0] / total[1])

    def save(self) -> None:
        """Writes this rank's shard of the model, then waits for everybody: a checkpoint counts only when it is whole."""
        unfinished = self.folder / "model.part"
        state = {name: parameter.to_local() for name, parameter in self.model.state_dict().items()}
        torch.save(state, unfinished)
        unfinished.replace(self.folder / "model.pt")
        dist.barrier()

    def between_steps(self, step: int, loss: float | None, settings: Settings) -> None:
        self.journal.record(f"step {step} loss {loss}", settings.journal_backlog)
        self.memory.keep(settings.keep_samples)
        self.memory.tidy(step)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


if __name__ == "__main__":
    main()
