"""Trains a small model over gloo; at its ninth step rank 2 makes the call that the variable CALL names.

`python bench/blocked record` starts four of these, each with what torchrun gives a rank, CALL, and a FOLDER of their own.
"""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from blocked.calls import CALLS

LATE, STEP = 2, 8


def prepare(step: int) -> None:
    if step == STEP and os.environ["RANK"] == str(LATE):
        folder = Path(os.environ["FOLDER"])
        (folder / "stuck").touch()
        CALLS[os.environ["CALL"]].function(folder)


def train() -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    step = 0
    while True:
        batch = torch.randn(8, 64)
        prepare(step)
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
        step += 1


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    train()
