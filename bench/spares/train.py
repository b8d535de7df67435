"""A training job of two machines, started by torchrun: once FOLDER/ready is there, node-1 fails after step STRIKE."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

#: Stands for the time that a GPU computes. Seconds.
PAUSE_S = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("strike", type=int)
    asked = parser.parse_args()
    folder, last, strike = asked.folder, asked.steps, asked.strike
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.Linear(64, 64)
    checkpoint, step = folder / "model.pt", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        step = saved["step"]
    while step < last:
        step += 1
        loss = model(torch.randn(32, 64)).square().mean()
        loss.backward()
        time.sleep(PAUSE_S)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "step": step}, folder / "model.part")
            (folder / "model.part").replace(checkpoint)
            print(f"step {step} loss {float(loss):.4f}", flush=True)
        if os.environ["HANGDOG_RUN_MACHINE"] == "node-1" and step >= strike and (folder / "ready").exists():
            raise RuntimeError("a fault of this machine")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
