"""The job of the live injections, on each rank: hosts compute, and sum up over gloo. `hangdog.trace()` fills the rings."""

import argparse
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import hangdog

#: Of a rank in its own code: longer than any bench plays. Seconds.
DELAY_S = 3600.0
#: Sums of a step, and the floats of each: 4 MiB.
BUCKETS, FLOATS = 4, 1 << 20
#: Rows and columns that a step multiplies, and how often: some tenth of a second on one core.
SIZE, TIMES = 512, 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where `strike-RANK` names what that rank does")
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    hangdog.trace()
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, step = dist.get_rank(), 0
    weights, gradients = torch.randn(SIZE, SIZE), [torch.ones(FLOATS) for _ in range(BUCKETS)]
    while True:
        step += 1
        struck = what.read_text() if (what := folder / f"strike-{rank}").exists() else ""
        compute(weights)
        if struck == "delay":
            read_the_next_shard()
        synchronize(gradients, other=struck == "mismatch")
        if rank == 0:
            print(f"step {step} loss 1.0", flush=True)
        if not (folder / f"ready-{rank}").exists():
            (folder / f"ready-{rank}").touch()


def compute(weights: torch.Tensor) -> None:
    result = weights
    for _ in range(TIMES):
        result = torch.tanh(result @ weights)


def read_the_next_shard() -> None:
    time.sleep(DELAY_S)


def synchronize(gradients: list[torch.Tensor], other: bool) -> None:
    for gradient in gradients:
        if other:
            dist.broadcast(gradient, 0)
        else:
            dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
