"""Starts the ranks of one job after the other, each forked from this process, which has PyTorch loaded already.

So a job of 32 ranks starts in seconds and shares most of its memory. Orders are lines of JSON on stdin, each answered by
one on stdout: `["ddp", FOLDER, SEED, [{"RANK": "0", ...}, ...]]` starts a job and is answered by the pids, `[]` ends it.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import torch._dynamo
import torch._inductor.compile_fx  # noqa: F401 - ranks that compile would each spend seconds on loading it

from hangdog.demo.prctl import adopt_orphans, die_with
from hangdog.demo.processes import DEATH_S, reap_leftovers
from live.network import NETWORK, enter
from live.trainers import combined, ddp, pipeline, polling, sharded

TRAINERS: Mapping[str, Callable[[], None]] = {
    "ddp": ddp.main,
    "fsdp": sharded.fsdp,
    "tensor": sharded.tensor,
    "pipeline": pipeline.main,
    "combined": combined.main,
    "polling": polling.main,
}


def main() -> None:
    die_with(int(sys.argv[1]))
    adopt_orphans()
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    print(json.dumps("ready"), file=answer)
    for line in sys.stdin:
        order = json.loads(line)
        if order:
            name, folder, seed, launches = order
            print(json.dumps([start(name, folder, seed, launch) for launch in launches]), file=answer)
        else:
            reap_leftovers(DEATH_S)
            print("[]", file=answer)
    reap_leftovers(DEATH_S)


def start(name: str, folder: str, seed: int, launch: dict[str, str]) -> int:
    """Forks one rank: its stdout is the FIFO `steps` of its folder, its stderr the file `errors`; answers its pid."""
    launcher = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with(launcher)
        own = Path(folder) / f"rank-{launch['RANK']}"
        for number, (path, mode) in enumerate(
            ((Path(os.devnull), os.O_RDONLY), (own / "steps", os.O_WRONLY), (own / "errors", os.O_WRONLY | os.O_CREAT))
        ):
            os.dup2(os.open(path, mode, 0o644), number)
        os.environ.update(launch)
        if NETWORK in launch:
            enter(launch[NETWORK])
        sys.argv = [name, folder, str(seed)]
        TRAINERS[name]()
    except Exception:  # noqa: BLE001 - the last words of a rank, whatever ended it
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
