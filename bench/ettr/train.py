"""The job of this bench, on each rank: it resumes from its checkpoint, and fails where FOLDER/strike says so."""

import argparse
import json
import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

#: Steps between two checkpoints, and the time of a step. Seconds.
SAVE_EVERY, STEP_S = 40, 0.5
#: NCCL's default, which is what ends a hang where nobody watches the job.
TIMEOUT = timedelta(minutes=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the checkpoint is and what the job did is written")
    parser.add_argument("steps", type=int, help="the last step")
    options = parser.parse_args()
    folder, last = options.folder, options.steps
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    rank = dist.get_rank()
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step, checkpoint = 0, folder / "model.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        step = saved["step"]
    while step < last:
        step += 1
        train_step(model, optimizer, fails(folder, rank))
        if step % SAVE_EVERY == 0:
            if rank == 0:
                torch.save({"model": model.state_dict(), "step": step}, folder / "model.part")
                (folder / "model.part").replace(checkpoint)
            dist.barrier()
        if rank == 0:
            print(f"step {step}", flush=True)
            with (folder / "steps").open("a") as file:
                file.write(f"{step} {time.monotonic():.2f}\n")
    dist.destroy_process_group()


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, skips: bool) -> None:
    optimizer.zero_grad()
    batch = torch.randn(32, 64)
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    time.sleep(STEP_S)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    if not skips:
        dist.all_reduce(loss.detach())


def fails(folder: Path, rank: int) -> bool:
    """Fails as it was told to, each time once; whether it is to skip a collective."""
    try:
        told = json.loads((folder / "strike").read_text())
    except FileNotFoundError:
        return False
    done = folder / f"struck-{told['number']}"
    if told["rank"] != rank or done.exists():
        return False
    done.touch()
    what = told["what"]
    if what == "exception":
        raise RuntimeError("the batch has no labels")
    if what == "exit":
        os._exit(3)
    if what == "loop":
        search_for_a_sample()
    if what == "locks":
        save_statistics()
    return bool(what == "skipped")


def search_for_a_sample() -> None:
    found = 0
    while found >= 0:
        found = (found + 1) % 1000


def save_statistics() -> None:
    one, other = threading.Lock(), threading.Lock()

    def writer() -> None:
        with other:
            time.sleep(1.0)
            one.acquire()

    threading.Thread(target=writer, daemon=True).start()
    with one:
        time.sleep(0.5)
        other.acquire()


if __name__ == "__main__":
    main()
