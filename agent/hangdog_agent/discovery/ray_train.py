"""Learns which rank a worker of Ray Train is: it sets RANK only while it runs, but Ray's own log of it says so from the first line on.

Ray Train (`ray.train.v2`) keeps a log of each worker, `logs/train/ray-train-sys-worker-ID.log` in the
folder of Ray's session, and holds it open as long as the worker lives. Each line is a JSON object with the rank and the run's
name as fields; how many ranks there are stands in the words of one of the first. Its training function runs in a thread of its
own: hangdog_models/training.py tells which.
"""

import json
import os
import re
from collections.abc import Callable

from hangdog_agent.discovery.announced import Announced
from hangdog_agent.procfs import Proc
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.printable import printable

#: What the kernel calls such a worker (15 characters of `ray::RayTrainWorker.execute`), and one that has nothing to do yet.
WORKER, IDLE = "ray::RayTrainWo", "ray::IDLE"
#: Its log, as the kernel names an open file; one of a job that runs no longer may have been removed.
_LOG = re.compile(r"/.*/logs/train/ray-train-sys-worker-[0-9a-f]{8,64}\.log")
#: The words of torch's backend, of which `world_size` is no field of its own (ray/train/torch/config.py).
_WORLD = re.compile(r"\[rank=(\d{1,9}), world_size=(\d{1,9})\]")
#: Open files of a worker that are looked at: it has some eighty.
_FILES = 4096
#: Of a log only its beginning is read, some tens of lines of a KiB.
BYTES = 64 << 10
#: A run's name is printed and sent; a longer one is cut.
_NAME = 200

#: Reads the beginning of a file in a way that may not hang; None when that failed.
Read = Callable[[str], bytes | None]


def find(proc: Proc, pid: int, read: Read) -> tuple[Announced | None, bool]:
    """What Ray says of this worker, if it does, and whether it has a log."""
    path = _log(os.fspath(proc.root / str(pid) / "fd"))
    data = read(path) if path else None
    return (parse(data) if data is not None else None), path is not None


def parse(data: bytes) -> Announced | None:
    """Reads the beginning of a worker's log, whose last line may be cut off; None where it names no rank."""
    found: Announced | None = None
    for line in data.split(b"\n"):
        try:
            stated = json.loads(line)
        except (ValueError, RecursionError):
            continue
        rank = stated.get("world_rank") if isinstance(stated, dict) and stated.get("component") == "worker" else None
        if type(rank) is not int or not 0 <= rank <= MAX_RANK:
            continue
        world = _WORLD.search(str(stated.get("message", "")))
        size = int(world[2]) if world and int(world[1]) == rank < int(world[2]) <= MAX_RANK + 1 else 0
        found = Announced(Rank(rank), size, printable(str(stated.get("run_name") or ""), _NAME))
        if size:
            break
    return found


def _log(folder: str) -> str | None:
    """The path of a worker's log, by way of the process that holds it open: in containers the name is not ours."""
    try:
        names = os.listdir(folder)[:_FILES]
        for name in names:
            if _LOG.fullmatch(os.readlink(f"{folder}/{name}")):
                return f"{folder}/{name}"
    except OSError:
        return None  # gone, or not permitted
    return None
