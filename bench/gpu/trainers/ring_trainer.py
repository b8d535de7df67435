"""One rank of a job that does nothing but collectives, then rounds of them with and without the profiler plug-in: plain torch.

    RANK=0 WORLD_SIZE=2 python ring_trainer.py STORES SIGNS      STORES: an empty folder; SIGNS.stop: a file that ends the first part

Where SIGNS.hang is there, the device of rank 1 hangs once, until SIGNS.release is there.
It says each thing as a line of JSON. What it did in the first part stays in its communicators until a line comes on its
standard input. Then it times the rounds; where the input ends instead, it ends.
"""

import datetime
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

import torch
import torch.distributed as dist

from gpu.trainers.device import Gpu

#: Calls timed in a round, and elements of each: small, for two processes that spin share one GPU by time slices.
CALLS, ELEMENTS = 60, 16_384
#: A round ends early after so long, on both ranks after the same call. Seconds.
ROUND_S = 1.0
#: Steps between two looks at the file that ends the job; it ends by itself after so long. Seconds.
LOOK, MOST_S = 10, 60.0
#: The device's hang ends by itself after so long. Seconds.
HANG_S = 8.0
ROUNDS = ("off", "on", "off", "on")


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def join(number: int, on: bool) -> None:
    """A new process group, whose communicators the plug-in watches or not."""
    os.environ["HANGDOG_PROFILER"] = "1" if on else "0"
    dist.init_process_group(
        "nccl",
        init_method=f"file://{sys.argv[1]}/store-{number}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=datetime.timedelta(seconds=30),
    )


def timed(number: int, on: bool) -> None:
    began = time.monotonic()
    join(number, on)
    data = torch.ones(ELEMENTS, device="cuda")
    ends = torch.zeros(1, device="cuda")
    for _ in range(3):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    ready, taken = time.monotonic(), []
    for call in range(CALLS):
        before = time.monotonic()
        dist.all_reduce(data)
        torch.cuda.synchronize()
        taken.append(time.monotonic() - before)
        if call % 10 == 9:
            ends.fill_(time.monotonic() - ready > ROUND_S)
            dist.all_reduce(ends)
            if ends.item():
                break
        data.fill_(1.0)
    dist.destroy_process_group()
    say(
        round="on" if on else "off",
        us=[round(one * 1e6, 1) for one in taken],
        median_us=round(statistics.median(taken) * 1e6, 1),
        begin_s=round(ready - began, 2),
    )


def sign(name: str) -> bool:
    return Path(f"{sys.argv[2]}.{name}").exists()


def hang() -> None:
    """Gives the device work that waits for the host; what comes after it on the stream does not begin."""
    try:
        device = Gpu()
        device.hang()
    except Exception as error:  # noqa: BLE001 - the job is worth more than its fault
        say(no_hang=f"{type(error).__name__}: {error}"[:300])
        return
    threading.Thread(target=_release, args=[device]).start()


def _release(device: Gpu) -> None:
    until = time.monotonic() + HANG_S
    while not sign("release") and time.monotonic() < until:
        time.sleep(0.05)
    device.release()


def main() -> None:
    torch.cuda.set_device(0)
    rank = int(os.environ["RANK"])
    say(torch=torch.__version__, nccl=".".join(map(str, torch.cuda.nccl.version())), pid=os.getpid())
    join(0, True)
    made = dict.fromkeys(("all_reduce", "all_gather", "send", "recv"), 0)
    data, gathered = torch.empty(ELEMENTS, device="cuda"), torch.empty(2 * ELEMENTS, device="cuda")
    passed, ends = torch.empty(1024, device="cuda"), torch.zeros(1, device="cuda")
    right, step, began = True, 0, time.monotonic()
    hung = rank != 1
    while not ends.item():
        if not hung and sign("hang"):
            hung = True
            hang()
        data.fill_(rank + 1.0)
        dist.all_reduce(data)
        dist.all_gather_into_tensor(gathered, data)
        for sender in (0, 1):
            passed.fill_(float(step))
            if sender == rank:
                dist.send(passed, 1 - rank)
                made["send"] += 1
            else:
                dist.recv(passed, 1 - rank)
                made["recv"] += 1
        made["all_reduce"] += 1
        made["all_gather"] += 1
        if step % LOOK == 0:
            ends.fill_(float(sign("stop") or time.monotonic() - began > MOST_S))
            dist.all_reduce(ends)
            made["all_reduce"] += 1
        right = right and data[0].item() == 3.0 and gathered[-1].item() == 3.0 and passed[0].item() == float(step)
        if not step:
            say(ready=True)
        step += 1
    torch.cuda.synchronize()
    say(done=True, steps=step, right=right, **made)
    goes_on = sys.stdin.readline()
    dist.destroy_process_group()
    if goes_on:
        for number, which in enumerate(ROUNDS, 1):
            timed(number, which == "on")
        say(timed=True)


if __name__ == "__main__":
    main()
