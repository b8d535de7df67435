"""How every live trainer begins: `python -m live.trainers.NAME FOLDER SEED`, with the usual launcher variables set."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from hangdog.demo.job.data import Corpus
from hangdog.demo.job.loop import prepare
from hangdog.demo.job.model import Shape
from hangdog.demo.shape import ROWS, TOKENS
from hangdog_models.reading.job import read_sizes


@dataclass(frozen=True, slots=True)
class Outset:
    """A rank that has joined its job: where its files lie, the parallel sizes, the model's shape, and its batches."""

    folder: Path
    sizes: dict[str, int]
    shape: Shape
    batches: Iterator[Tensor]


def begin() -> Outset:
    """Joins the other ranks. Data-parallel replicas get data of their own, all ranks of one replica the same."""
    rank, seed = int(os.environ["RANK"]), int(sys.argv[2])
    folder = Path(sys.argv[1]) / f"rank-{rank}"
    sizes = read_sizes(os.environ["HANGDOG_TOPOLOGY"])
    shape = Shape(TOKENS, heads=max(4, sizes.get("tp", 1)), layers=max(4, sizes.get("pp", 1)))
    replica = rank // sizes.get("tp", 1) % sizes.get("dp", 1)
    loader = prepare(folder, Corpus(shape.vocabulary, TOKENS, ROWS), seed, replica)
    return Outset(folder, sizes, shape, loader)
