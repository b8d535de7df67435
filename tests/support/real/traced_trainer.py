"""A trainer of four ranks over gloo that polls for its collectives, so that all stacks of a hang are alike; a program.

argv: folder, rank, ranks, and whether it is traced. Once the file `hang` lies in the folder, rank 2 polls for something that
never comes, and the others poll for it.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

import hangdog

#: Whose own work never ends.
GUILTY = 2


def settle(ready: Callable[[], bool]) -> None:
    """How this trainer waits for anything, as for a device: nothing in its stack says for what."""
    while not ready():
        time.sleep(0.005)


def train(folder: Path, rank: int) -> None:
    gradient = torch.ones(1024)
    step = 0
    while True:
        hung = rank == GUILTY and (folder / "hang").exists()
        step += 1
        settle(bool if hung else (lambda: True))
        work = dist.all_reduce(gradient, async_op=True)
        settle(work.is_completed)
        work.wait()
        gradient /= dist.get_world_size()
        if step == 5:
            (folder / f"trains-{rank}").touch()
        time.sleep(0.02)


def main() -> None:
    folder, rank, ranks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    if sys.argv[4] == "traced":
        hangdog.trace()
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    train(folder, rank)


if __name__ == "__main__":
    main()
