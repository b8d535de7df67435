"""A small transformer that is trained for as many steps as a page says, and writes how long each took.

    python small_transformer.py PAGE [--dry] [--small]     with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT

Gradients are reduced one by one, as many collectives a step as it has parameters. `--small`: messages that cross loopback.
"""

import datetime
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from gpu.trainers.device import device
from gpu.trainers.page import open_page
from gpu.trainers.steps import KEPT, At

#: Between two looks whether there is more to do. Seconds.
IDLE_S = 0.001
GROUP_S = 60.0
WORDS = 4096
RATE = 1e-4


@dataclass(frozen=True, slots=True)
class Size:
    width: int
    layers: int
    batch: int
    length: int


#: Some 50 ms a step on an H200, for the CPU, and for two ranks that share a GPU.
LARGE, TINY, SMALL = Size(2048, 8, 8, 1024), Size(64, 2, 2, 32), Size(256, 2, 2, 128)


class Transformer(torch.nn.Module):  # type: ignore[misc]  # torch ships no types here
    """Blocks of attention and a two-layer perceptron between an embedding and the words."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, size.width)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                size.width, size.width // 64, 4 * size.width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(size.layers)
        )
        self.head = torch.nn.Linear(size.width, WORDS)

    def forward(self, words: Any) -> Any:
        hidden = self.embedding(words)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def main() -> None:
    page, dry = open_page(Path(sys.argv[1])), "--dry" in sys.argv
    where = device(dry)
    size = SMALL if "--small" in sys.argv and not dry else TINY if dry else LARGE
    torch.manual_seed(1)
    dist.init_process_group(where.backend, timeout=datetime.timedelta(seconds=GROUP_S))
    model = Transformer(size).to(where.name, torch.float32 if dry else torch.bfloat16)
    parameters = list(model.parameters())
    words = torch.randint(WORDS, (size.batch, size.length + 1), device=where.name)
    first = os.environ["RANK"] == "0"
    done = 0
    print("ready", flush=True)
    while True:
        if done >= page[At.TARGET]:
            time.sleep(IDLE_S)
            continue
        began = time.perf_counter()
        loss = functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
        with (
            torch.no_grad()
        ):  # by hand: an optimizer of torch loads its compiler first, which takes as long as torch itself
            for parameter in parameters:
                parameter.sub_(parameter.grad, alpha=RATE)
                parameter.grad = None
        where.synchronize()
        if first:
            page[At.STEPS + done % KEPT] = time.perf_counter() - began
        done += 1
        if first:
            page[At.DONE] = done


if __name__ == "__main__":
    main()
