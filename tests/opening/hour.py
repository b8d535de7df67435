"""A machine of its own for one agent: a table of processes with some healthy trainers in it, and strace beside the agent.

`python -m opening.hour ORDERS` runs as the first process of a pid namespace; ORDERS is the JSON of `Hour`. It prints the
agent's capabilities when the hour is over, and all it has started ends with it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from attacking.stage import Rights, started

#: Trains in steps, and says so in its log, on stdout and by its heartbeat; a data loader works beside it.
TRAINS = """
os.chdir(given["home"])
out = os.open("out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
door = opened(given["pipe"])
if os.fork() == 0:
    dies_with_parent()
    while True:
        time.sleep(0.01)
ready()
os.dup2(out, 1)
os.dup2(out, 2)
log = open("log", "a", buffering=1)
number = 0
while True:
    number += 1
    print(f"step {number} loss 1.0", file=log)
    os.write(1, f"step {number}\\n".encode())
    Path("beat").touch()
    if number % 400 == 0:
        time.sleep(given["pause_s"])  # a checkpoint, say: it makes wonder
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        sum(range(100))
    time.sleep(0.01)
"""
#: A pause of the training, shorter than what alarms anybody. Seconds.
PAUSE_S = 2.0


def main() -> None:
    orders = json.loads(sys.argv[1])
    with contextlib.ExitStack() as stack:
        for rank, home in enumerate(orders["homes"]):
            stack.enter_context(training(rank, Path(home), len(orders["homes"])))
        # the filter stops it at these calls only, so that it goes on at nearly its own pace
        trace = [
            "strace",
            "-f",
            "--seccomp-bpf",
            "-y",
            "-qq",
            "-s",
            "0",
            "-o",
            orders["trace"],
            "-e",
            f"trace={orders['calls']}",
        ]
        log = stack.enter_context(Path(orders["log"]).open("wb"))
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        agent = subprocess.Popen([*trace, *orders["agent"]], stdout=log, stderr=log, env=alone)
        if passed(agent, Path(orders["trace"]), orders["enough"], orders["most_s"]):
            traced = int(Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()[0])
            print(status(traced), flush=True)
            os.kill(traced, signal.SIGTERM)  # strace itself goes on until the agent has ended
            agent.wait(60)


def passed(agent: "subprocess.Popen[bytes]", trace: Path, enough: dict[str, int], most_s: float) -> bool:
    """Returns once files that end like each of these were opened so often, or so many seconds have passed.

    False when the agent has ended.
    """
    until, at, count = time.monotonic() + most_s, 0, Counter[str]()
    while time.monotonic() < until and any(count[path] < most for path, most in enough.items()):
        time.sleep(1.0)
        if agent.poll() is not None:
            return False
        if trace.exists():
            with trace.open("rb") as file:
                file.seek(at)
                fresh = file.read()
                at += len(fresh)
            count.update({path: fresh.count(f'{path}"'.encode()) for path in enough})
    return True


def status(pid: int) -> str:
    """Its capabilities in force, as the kernel writes them."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("CapEff:"))


def training(rank: int, home: Path, world: int) -> contextlib.AbstractContextManager[object]:
    environ = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "HANGDOG_JOB": "hour",
        "HANGDOG_LOG": f"{home}/log",
        "HANGDOG_HEARTBEAT": f"{home}/beat",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{home}/pipe-",
        "TORCH_WORKER_SERVER_SOCKET": f"{home}/socket",
    }
    return started(
        TRAINS, Rights(given={"home": os.fspath(home), "pipe": f"{home}/pipe-{rank}.pipe", "pause_s": PAUSE_S}), environ
    )


if __name__ == "__main__":
    main()
