"""Synthetic text with a pattern to learn, staged in shard files and read by loader worker processes."""

# mypy: allow-subclassing-any
# torch is untyped for us, so its classes are Any to mypy.

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

#: Shard files of one rank; they are read again and again, so this only has to exceed what the workers read ahead.
SHARDS = 32
#: Share of tokens that do not follow the pattern: the loss has a floor to fall to, as with real text.
NOISE = 0.1
#: Loader processes of each rank; two, so that one alone cannot be mistaken for the loader.
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Corpus:
    """What a shard holds: `rows` sequences of `tokens` + 1 ids below `vocabulary`."""

    vocabulary: int
    tokens: int
    rows: int


def stage_shards(folder: Path, corpus: Corpus, seed: int, replica: int) -> None:
    """Writes the shards of one data-parallel replica into `folder`: each token mostly decides the next one."""
    follower = torch.randperm(corpus.vocabulary, generator=torch.Generator().manual_seed(seed))
    chance = torch.Generator().manual_seed(seed * 1009 + replica)
    rows = SHARDS * corpus.rows
    columns = [torch.randint(corpus.vocabulary, (rows,), generator=chance)]
    for _ in range(corpus.tokens):
        stray = torch.randint(corpus.vocabulary, (rows,), generator=chance)
        columns.append(torch.where(torch.rand(rows, generator=chance) < NOISE, stray, follower[columns[-1]]))
    folder.mkdir(parents=True, exist_ok=True)
    for shard, sequences in enumerate(torch.stack(columns, dim=1).split(corpus.rows)):
        (folder / f"{shard:05}.tokens").write_bytes(sequences.contiguous().numpy().tobytes())


class TokenShards(IterableDataset[Tensor]):
    """The sequences of a folder's shards in a fixed order, for ever; each worker reads its own share of the files."""

    def __init__(self, folder: Path, corpus: Corpus) -> None:
        self.folder, self.corpus = folder, corpus

    def read_shard(self, shard: int) -> Tensor:
        content = bytearray((self.folder / f"{shard:05}.tokens").read_bytes())
        return torch.frombuffer(content, dtype=torch.int64).view(-1, self.corpus.tokens + 1)

    def __iter__(self) -> Iterator[Tensor]:
        worker = get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        for position in itertools.count(first, stride):
            yield from self.read_shard(position % SHARDS)


def batches(folder: Path, corpus: Corpus, prepare_worker: Callable[[int], None]) -> Iterator[Tensor]:
    """Endless batches of one shard each, (rows, tokens + 1); the worker processes are forked by this very call."""
    loader = DataLoader(
        TokenShards(folder, corpus),
        batch_size=corpus.rows,
        num_workers=WORKERS,
        worker_init_fn=prepare_worker,
        multiprocessing_context="fork",
    )
    return iter(loader)
