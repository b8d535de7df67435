"""Plain PyTorch: ranks of `torch.multiprocessing.spawn`, which have no RANK in their environment, under DistributedDataParallel."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from by_torch import metrics_apart
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from user_code import Between, Shards

WORLD = int(os.environ["FRAMEWORKS_WORLD"])
LENGTH, VOCABULARY = 32, 128


def worker(rank):
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(1)
    model = DistributedDataParallel(
        nn.Sequential(nn.Embedding(VOCABULARY, 128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, VOCABULARY))
    )
    optimizer = torch.optim.AdamW(model.parameters())
    between = Between(rank, dist.barrier, save=lambda file: torch.save(model.state_dict(), file), **metrics_apart())
    for tokens in DataLoader(Shards(rank, 8, LENGTH + 1, VOCABULARY), batch_size=None):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if between.steps():
            break
    dist.barrier()


if __name__ == "__main__":
    sys.exit(mp.spawn(worker, nprocs=WORLD))
