"""A real training job that resumes from its checkpoint: `trainer.py FOLDER STEPS`, below torchrun or with its variables set.

The code that reports the loss is the user's: the module `report` in FOLDER/code, of which a newer version may have a bug.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

#: Steps between two checkpoints, and the pause of a step, which stands for the time that a GPU computes. Seconds.
SAVE_EVERY, PAUSE_S = 5, 0.1


def main() -> None:
    folder, last = Path(sys.argv[1]), int(sys.argv[2])
    sys.path.insert(0, str(folder / "code"))
    from report import report  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step, checkpoint = 0, folder / "model.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        step = saved["step"]
        print(f"rank {rank} resumes after step {step}", flush=True)
    while step < last:
        step += 1
        optimizer.zero_grad()
        batch = torch.randn(32, 64)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        work(PAUSE_S)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            assert parameter.grad is not None
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        mean = report(rank, step, loss.detach())
        if step % SAVE_EVERY == 0:
            if rank == 0:
                torch.save({"model": model.state_dict(), "step": step}, folder / "model.part")
                (folder / "model.part").replace(checkpoint)
            dist.barrier()
        if rank == 0:
            print(f"step {step} loss {float(mean):.4f}", flush=True)
    dist.destroy_process_group()
    if rank == 0:
        (folder / "finished").write_text(f"{step} {os.environ['HANGDOG_RUN_MACHINE']}")


def work(seconds: float) -> None:
    """A quarter of it on the processor, the rest waiting for a device that is not there."""
    until = time.perf_counter() + seconds / 4
    while time.perf_counter() < until:
        torch.randn(64, 64) @ torch.randn(64, 64)
    time.sleep(seconds * 3 / 4)


if __name__ == "__main__":
    main()
