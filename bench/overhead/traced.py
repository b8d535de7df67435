"""What `hangdog.trace()` costs: a step of a real gloo job with and without it, and the agent that reads what it keeps."""

import contextlib
import json
import math
import os
import statistics
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from hangdog.demo.conductor import free_port
from hangdog.demo.pipes import first_line
from overhead.idle import MOST_CPU, SETTLE_S, TRAINERS, UNSUSPICIOUS, WINDOW_S, window
from overhead.stage import START_S, NotStarted, Stage, met, rank_environ, stage
from overhead.steps import RANKS, row

#: The bound: so much of a step.
MOST_SLOWER = 0.01
#: Collectives a step, as many as a model of some twenty layers reduces in Python, and how long a step computes. Seconds.
COLLECTIVES, COMPUTES_S = 64, 0.05
#: Steps of one job before the other has its turn.
BLOCK = 4
#: Communicators of each trainer: all that a ring has places for.
COMMUNICATORS = 64

TRAINER = """
import json, sys, time
import torch, torch.distributed as dist
import hangdog
if sys.argv[1] == "traced":
    assert hangdog.trace()
dist.init_process_group("gloo")
torch.set_num_threads(1)
tensors = [torch.zeros(1024) for _ in range(int(sys.argv[2]))]
def step():
    began = time.perf_counter()
    until = began + float(sys.argv[3])
    while time.perf_counter() < until:
        pass
    for tensor in tensors:
        dist.all_reduce(tensor)
    return time.perf_counter() - began
steps = torch.zeros(1, dtype=torch.long)
print("ready", flush=True)
orders = open(sys.argv[4]) if dist.get_rank() == 0 else None
while True:
    if dist.get_rank() == 0:
        steps[0] = int(orders.readline() or 0)
    dist.broadcast(steps, 0)
    if not steps[0]:
        break
    took = [step() for _ in range(int(steps[0]))]
    if dist.get_rank() == 0:
        print(json.dumps(took), flush=True)
"""

#: A trainer that keeps a ring, and begins and ends an operation of each of its communicators over and over.
STAND_IN = """
import os, sys, time
from hangdog.tracing.ring_file import create_ring
from hangdog.tracing.ring_writer import RingWriter, call_bytes
rank, many = int(os.environ["RANK"]), int(sys.argv[1])
ring = RingWriter(create_ring()) if many else None
comms = [ring.begin(number + 1, f"group {number}", rank, 8, 1) for number in range(many)]
call = call_bytes("AllReduce", "Float32", "gloo", 0, True)
print("ready", flush=True)
while True:
    places = [ring.start(comm, call, 1024, True) for comm in comms]
    sum(range(20000))
    for comm, place in zip(comms, places):
        ring.finish(comm, place)
    time.sleep(0.05)
"""


def traced(windows: int) -> None:
    """Prints how much longer a traced step is, and the share of a core that the agent takes beside rings."""
    _steps(4 * windows)
    _agent(windows)


def _steps(pairs: int) -> None:
    with stage() as here:
        jobs = {kind: _Job(here, kind) for kind in ("plain", "traced")}
        for job in jobs.values():
            job.steps(BLOCK)
        ratios: list[float] = []
        plain: list[float] = []
        for pair in range(pairs):  # now one first, now the other: what drifts concerns both
            kinds = ("plain", "traced") if pair % 2 else ("traced", "plain")
            mean = {kind: jobs[kind].steps(BLOCK) for kind in kinds}
            ratios.append(math.log(mean["traced"] / mean["plain"]))
            plain.append(mean["plain"])
    step_ms = 1000 * statistics.fmean(plain)
    print(
        f"\ntraced: {RANKS} ranks over gloo, {COLLECTIVES} collectives in a step of {step_ms:.1f} ms,"
        f" {pairs} pairs of {BLOCK} steps with and without hangdog.trace()"
    )
    mean_log, low, high = row("traced / plain, mean step", ratios)
    row("plain / plain, mean step", [(-1) ** at * math.log(b / a) for at, (a, b) in enumerate(pairwise(plain))])
    per_collective = 1000 * step_ms * math.expm1(mean_log) / COLLECTIVES
    told = met(high < MOST_SLOWER) if low > MOST_SLOWER or high < MOST_SLOWER else "cannot be told on this machine"
    print(f"  that is {per_collective:+.1f} us a collective; bound {MOST_SLOWER:.0%} of a step: {told}", flush=True)


class _Job:
    """Ranks that make as many steps as the first one reads from a pipe."""

    def __init__(self, here: Stage, kind: str) -> None:
        orders = here.folder / f"orders-{kind}"
        os.mkfifo(orders)
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
        options = ("-c", TRAINER, kind, str(COLLECTIVES), str(COMPUTES_S), str(orders))
        ranks = [
            here.start(f"{kind}-{rank}", *options, **rank_environ(rank, RANKS), **meeting, OMP_NUM_THREADS="1")
            for rank in range(RANKS)
        ]
        for rank, process in enumerate(ranks):
            if first_line(process, START_S) != "ready":
                raise NotStarted(f"rank {rank} of the {kind} job did not start: {here.said(f'{kind}-{rank}')}")
        self._first, self._orders = ranks[0], orders.open("w")

    def steps(self, count: int) -> float:
        """The mean of so many steps, in seconds."""
        print(count, file=self._orders, flush=True)
        took: list[float] = json.loads(first_line(self._first, START_S) or "[]")
        if not took:
            raise NotStarted("a job of the measurement ended")
        return statistics.fmean(took)


def _agent(windows: int) -> None:
    print(
        f"\ntraced: an agent beside {TRAINERS} trainers (stand-ins), {windows} windows of {WINDOW_S:g} s; CPU of one core"
    )
    for many in (0, COMMUNICATORS):
        with stage() as here, _rings_removed():
            for rank in range(TRAINERS):
                here.start(f"rank-{rank}", "-c", STAND_IN, str(many), says="ready", **rank_environ(rank, TRAINERS))
            agent = here.agent(*UNSUSPICIOUS)
            time.sleep(SETTLE_S)
            used = [window(agent.pid) for _ in range(windows)]
        share = statistics.fmean(one.own + one.readers for one in used)
        most = max(one.own + one.readers for one in used)
        bound = f"bound {MOST_CPU:.1%}: {met(share < MOST_CPU)}"
        print(f"  {many:3} communicators in each: {share:.3%}, most in a window {most:.3%}; {bound}", flush=True)


@contextlib.contextmanager
def _rings_removed() -> Iterator[None]:
    """Killed stand-ins leave their rings behind; those that were there before stay."""
    folder = Path(f"/dev/shm/hangdog-{os.geteuid()}")
    before = set(folder.glob("*"))
    try:
        yield
    finally:
        for ring in set(folder.glob("*")) - before:
            ring.unlink(missing_ok=True)
