"""What trainers do between steps and is harmless, however long it takes: evaluating, exporting and compiling.

Each lasts until the file `<duty>.enough` appears in the job's folder, as if the held-out set, or the model, ended there;
that it began is told by the file `<duty>.begun`.
"""

import io
import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _WorkerServer

from hangdog.demo.job.loop import TrainingLoop
from hangdog.demo.job.model import ModelStage, Shape
from hangdog.demo.job.settings import LiveSettings
from hangdog.demo.job.train import token_loss
from hangdog.demo.shape import ROWS, TOKENS

#: The reference model: quick to evaluate, so that whoever waits for its evaluation waits for many of them.
SMALL = Shape(TOKENS, layers=1)

#: What torch says of a disk that takes no more.
FULL = "inline_container.cc"
#: Between two tries to save. Seconds.
RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class DutySettings(LiveSettings):
    """After which step each duty is done, 0 for never. All ranks have to agree upon all but `recompile_at`."""

    evaluate_at: int = 0
    review_at: int = 0
    export_at: int = 0
    archive_at: int = 0
    compile_at: int = 0
    recompile_at: int = 0


class Duties(TrainingLoop):
    """A training loop with duties; it also answers PyTorch's worker server on the socket `worker` of its folder."""

    settings = DutySettings

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        #: A small model of this rank's own, which no other rank has a part in.
        self.reference = ModelStage(SMALL, 0, 1)
        self.door = _WorkerServer(str(folder / "worker"), -1)

    @abstractmethod
    def predict(self, batch: Tensor) -> float:
        """The loss of a batch, (rows, tokens + 1), without training on it; 0 where this rank does not know it."""

    def between_steps(self, step: int, loss: float | None, settings: LiveSettings) -> None:
        super().between_steps(step, loss, settings)
        assert isinstance(settings, DutySettings)
        due = {
            self.evaluate: settings.evaluate_at,
            self.review: settings.review_at,
            self.export: settings.export_at,
            self.archive: settings.archive_at,
            self.compile_all: settings.compile_at,
            self.recompile: settings.recompile_at,
        }
        for duty, at in due.items():
            if step == at:
                duty()
                self.memory.set_limit()  # what a duty has cached is no leak

    def save(self) -> None:
        """A disk that is full may be cleared by somebody: as many trainers do, tries again and again."""
        while True:
            try:
                return super().save()
            except RuntimeError as error:
                if FULL not in str(error):
                    raise
                time.sleep(RETRY_S)

    def evaluate(self) -> float:
        """All ranks together: the mean loss over the held-out batches."""
        total = torch.zeros(2)
        for last in self.until_enough("evaluate"):
            seen = torch.tensor([self.predict(self.held_out()), 1.0, float(last)])
            dist.all_reduce(seen)
            total += seen[:2]
            if seen[2]:
                break
        return float(total[0] / total[1])

    def review(self) -> None:
        """Rank 0 alone judges what its reference model says; the others wait for it."""
        if dist.get_rank() == 0:
            losses: list[float] = []
            for last in self.until_enough("review"):
                batch = self.held_out()
                with torch.no_grad():
                    losses.append(float(token_loss(self.reference(batch[:, :-1]), batch[:, 1:])))
                if last:
                    break
        dist.barrier()

    def export(self) -> None:
        """Rank 0 alone writes the model in the form others read it; the others wait for it."""
        if dist.get_rank() == 0:
            for number, last in enumerate(self.until_enough("export")):
                self.write_layer(self.folder / f"layer-{number % 8}.bin", self.reference)
                if last:
                    break
        dist.barrier()

    def archive(self) -> None:
        """Every rank writes its part again and again, as for many checkpoints kept; then all wait for each other."""
        for number, last in enumerate(self.until_enough("archive")):
            torch.save(self.state(), self.folder / f"kept-{number % 8}.pt")
            if last:
                break
        dist.barrier()

    def write_layer(self, path: Path, layer: nn.Module) -> None:
        for name, tensor in layer.state_dict().items():
            content = io.BytesIO()
            torch.save(tensor.clone(), content)
            path.with_suffix(f".{name}").write_bytes(content.getvalue())

    def compile_all(self) -> None:
        """All ranks compile."""
        self.compile_layers("compile", "aot_eager")

    def recompile(self) -> None:
        """This rank compiles; the others wait for it."""
        self.compile_layers("recompile", "inductor")

    def compile_layers(self, duty: str, backend: str) -> None:
        """Compiles layers as this rank comes to use them, each of another width.

        Where all ranks do, they only trace (`aot_eager`): a C++ compiler on every rank would take minutes on two cores.
        """
        for number, last in enumerate(self.until_enough(duty)):
            torch._dynamo.reset()
            hidden = torch.randn(number + 2, 8 * (number + 1))
            layer = nn.Sequential(nn.LayerNorm(hidden.shape[1]), nn.GELU(), nn.Linear(hidden.shape[1], 8))
            torch.compile(layer, backend=backend)(hidden)
            if last:
                break

    def held_out(self) -> Tensor:
        return torch.randint(SMALL.vocabulary, (ROWS, TOKENS + 1))

    def until_enough(self, duty: str) -> Iterator[bool]:
        """Yields whether this is the last time."""
        job = self.folder.parent
        (job / f"{duty}.begun").touch()
        while True:
            yield (job / f"{duty}.enough").exists()
