"""The training loop of one rank: batches, steps, reports, checkpoints and tidying up, whatever the model and its parallelism.

How a step is computed is left to those who know the model; everything here is the same for all of them.
"""

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from hangdog.demo.job.data import Corpus, batches, stage_shards
from hangdog.demo.job.journal import Journal
from hangdog.demo.job.memory import MemoryKeeper
from hangdog.demo.job.settings import LiveSettings, read_settings
from hangdog.demo.prctl import die_with, let_others_look


def prepare(folder: Path, corpus: Corpus, seed: int, replica: int) -> Iterator[Tensor]:
    """Makes this process a rank whose files lie in `folder`: seeds it, stages the data of its replica, joins the others.

    Answers its endless batches, (rows, tokens + 1). The usual launcher variables have to be set.
    """
    let_others_look()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    stage_shards(folder / "shards", corpus, seed, replica)
    # Forked before gloo starts its threads: a lock that one of them held at that moment would stay locked in the worker.
    loader = batches(folder / "shards", corpus, _worker_preparation())
    dist.init_process_group("gloo")
    return loader


def _worker_preparation() -> Callable[[int], None]:
    trainer = os.getpid()

    def prepare(_worker: int) -> None:
        die_with(trainer)
        let_others_look()

    return prepare


class TrainingLoop(ABC):
    """The training loop of one rank; it tells each finished step on stdout as a line of JSON."""

    #: What may be changed while it runs.
    settings: type[LiveSettings] = LiveSettings

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Journal(folder / "journal.log")
        self.memory = MemoryKeeper()

    @abstractmethod
    def train_step(self, batch: Tensor) -> float | None:
        """One forward, backward and update on `batch`, (rows, tokens + 1); the loss, where this rank knows it."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """This rank's part of the model, as its checkpoint holds it."""

    def run(self, loader: Iterator[Tensor]) -> None:
        """Trains until somebody ends the process."""
        step = 0
        while True:
            step += 1
            began = time.perf_counter()
            settings = read_settings(self.folder / "settings.json", self.settings)
            loss = self.train_step(next(loader))
            if step % settings.report_every == 0:
                loss = self.report(loss)
            if step % settings.save_every == 0:
                self.save()
            self.between_steps(step, loss, settings)
            progress = {"step": step, "loss": loss, "seconds": round(time.perf_counter() - began, 3)}
            print(json.dumps(progress), flush=True)

    def report(self, loss: float | None) -> float:
        """The loss averaged over all ranks that know one; a collective of the whole job."""
        total = torch.tensor([loss or 0.0, 0.0 if loss is None else 1.0])
        dist.all_reduce(total)
        return float(total[0] / total[1])

    def save(self) -> None:
        """Writes this rank's part of the model, then waits for everybody: a checkpoint counts only when it is whole."""
        unfinished = self.folder / "model.part"
        torch.save(self.state(), unfinished)
        unfinished.replace(self.folder / "model.pt")
        dist.barrier()

    def between_steps(self, step: int, loss: float | None, settings: LiveSettings) -> None:
        self.journal.record(f"step {step} loss {loss}", settings.journal_backlog)
        self.memory.keep(settings.keep_samples)
        self.memory.release(step)
