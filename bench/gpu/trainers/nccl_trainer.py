"""One rank of a plain data-parallel job: `python nccl_trainer.py FOLDER [dry]`, with the usual launcher variables set.

It trains until somebody ends it, rank 0 logs each step, and at a step that an order names it does what the order says:
a duty that every trainer knows, or a fault.
"""

# mypy: allow-subclassing-any
# torch is untyped for us, so its classes are Any to mypy.

import json
import os
import sys
import threading
import time
from datetime import timedelta
from itertools import count
from pathlib import Path
from queue import Queue
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from gpu.trainers.device import Device, device

VOCABULARY = 512
#: Width, layers, rows and tokens of a batch: on a GPU a step takes some tenths of a second, most of it for the network.
ON_GPU, DRY = (256, 4, 8, 256), (64, 2, 4, 32)
#: A step takes so long at least, as in a job whose model is no toy. Seconds.
PACE_S = 0.25
#: The loss is averaged over all ranks so often.
REPORT_EVERY = 5
#: How often it is looked whether a hang is over. Seconds.
LOOK_S = 0.1


class Model(nn.Module):
    """A small transformer that predicts the next token."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        block = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        logits: Tensor = self.head(self.blocks(self.embedding(tokens), mask=mask, is_causal=True))
        return logits


class Trainer:
    def __init__(self, folder: Path, own: Device, shape: tuple[int, int, int, int]) -> None:
        self.folder, self.device = folder, own
        self.rank = int(os.environ["RANK"])
        width, layers, self.rows, self.tokens = shape
        torch.manual_seed(1)
        self.model = DistributedDataParallel(Model(width, layers).to(own.name), bucket_cap_mb=512)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.random = torch.Generator().manual_seed(self.rank)
        self.stock: Queue[Tensor] = Queue(maxsize=2)
        self.skipped = self.resized = False
        self.done = 0

    def run(self) -> None:
        threading.Thread(target=self.load, daemon=True).start()
        for step in count(1):
            began = time.monotonic()
            self.obey(step)
            loss = self.train_step(self.next_batch())
            if step % REPORT_EVERY == 0:
                loss = self.average(loss)
            time.sleep(max(0.0, PACE_S - (time.monotonic() - began)))
            if self.rank == 0:
                print(f"step {step} loss {loss:.4f} step_time {time.monotonic() - began:.3f} s", flush=True)
            part = self.folder / f"step-{self.rank}.part"
            part.write_text(str(step))
            part.rename(self.folder / f"step-{self.rank}")  # whoever reads it never finds it empty

    def load(self) -> None:
        """The loader: a thread that keeps two batches in stock."""
        stall = self.folder / f"fifo-{self.rank}"
        while True:
            if stall.exists():  # a file server that does not answer
                stall.read_bytes()
                stall.unlink(missing_ok=True)
            self.stock.put(torch.randint(VOCABULARY, (self.rows, self.tokens + 1), generator=self.random))

    def next_batch(self) -> Tensor:
        return self.stock.get().to(self.device.name)

    def train_step(self, batch: Tensor) -> float:
        self.optimizer.zero_grad()
        logits = self.model(batch[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.device.synchronize()
        mean: float = loss.item()
        return mean

    def average(self, loss: float) -> float:
        if self.skipped:
            return loss
        total = torch.full((1 << 16 if self.resized else 1,), loss, device=self.device.name)
        dist.all_reduce(total)
        mean: float = total[0].item() / dist.get_world_size()
        return mean

    def obey(self, step: int) -> None:
        """Does what the latest order says, at the step it names."""
        try:
            order: dict[str, Any] = json.loads((self.folder / "due.json").read_text())
        except FileNotFoundError:
            return
        if order["step"] != step or order["number"] <= self.done:
            return
        self.done = order["number"]
        if self.rank in order["ranks"]:
            (self.folder / f"begun-{self.rank}").write_text(str(order["number"]))
            getattr(self, order["act"])()
        if order["act"] in ("evaluate", "checkpoint"):  # the others wait for who does it
            dist.barrier()

    def evaluate(self) -> None:
        until = time.monotonic() + 8.0
        while time.monotonic() < until:
            with torch.no_grad():
                self.model.module(self.next_batch()[:, :-1]).sum().item()

    def checkpoint(self) -> None:
        until = time.monotonic() + 6.0
        while time.monotonic() < until:
            torch.save(self.model.state_dict(), self.folder / "model.pt")

    def compile(self) -> None:
        """Compiles what it has not compiled before, as a job whose shapes change."""
        torch.compiler.reset()
        compiled = torch.compile(Model(64, 4).to(self.device.name))
        compiled(torch.zeros((2, 32), dtype=torch.long, device=self.device.name)).sum().backward()

    def device_hang(self) -> None:
        self.device.hang()
        threading.Thread(target=self._release, daemon=True).start()

    def _release(self) -> None:
        while not (self.folder / "released").exists():
            time.sleep(LOOK_S)
        self.device.release()

    def skip(self) -> None:
        self.skipped = True

    def resize(self) -> None:
        self.resized = True


def main() -> None:
    folder, dry = Path(sys.argv[1]), sys.argv[2:] == ["dry"]
    torch.set_num_threads(1)
    own = device(dry)
    dist.init_process_group(own.backend, timeout=timedelta(minutes=10))
    Trainer(folder, own, DRY if dry else ON_GPU).run()


if __name__ == "__main__":
    main()
