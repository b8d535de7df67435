"""The ratio of a job's step times with and without an agent beside it."""

import math
import os
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangdog.demo.conductor import free_port
from hangdog.demo.job.settings import write_settings
from hangdog.demo.step_reports import StepReports
from overhead.stage import Stage, cpu_s, met, rank_environ, stage

#: The bound: so much of a step.
MOST_SLOWER = 0.001
#: Each rank takes a core; more than two are rare on the machines this is run on.
RANKS = 2
#: How long the agent runs, or is stopped, at a stretch: many steps, and less than the 12.5 s after which a server misses it.
STRETCH_S = 5.0
#: Until the agent has learned the job's rhythm. Seconds.
SETTLE_S = 60.0
#: Means drawn for an interval.
DRAWS = 4000


@dataclass(frozen=True, slots=True)
class Stretch:
    """Seconds a step, mean and median, and the share of one core that the agent and its tools took."""

    mean: float
    median: float
    agent: float


def steps(pairs: int) -> None:
    """Trains one job beside one agent that is stopped and goes on in turn, and prints how steps with it and without it differ."""
    with stage() as here:
        job = start_job(here)
        agent = here.agent()
        while not list(job.follow(0.1)):  # PyTorch is being loaded
            pass
        follow(job, agent.pid, SETTLE_S)
        off: list[Stretch] = []
        on: list[Stretch] = []
        for pair in range(pairs):  # now one first, now the other: what drifts concerns both
            for running in (True, False) if pair % 2 else (False, True):
                os.kill(agent.pid, signal.SIGCONT if running else signal.SIGSTOP)
                (on if running else off).append(follow(job, agent.pid, STRETCH_S))
        os.kill(agent.pid, signal.SIGCONT)
    show(off, on)


def start_job(here: Stage) -> StepReports:
    port = str(free_port())
    ranks: dict[int, subprocess.Popen[bytes]] = {}
    for rank in range(RANKS):
        (here.folder / f"rank-{rank}").mkdir()
        write_settings(
            here.folder / f"rank-{rank}" / "settings.json", {"save_every": 1 << 30}
        )  # else disks are measured
        launch = rank_environ(rank, RANKS) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        launch |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        ranks[rank] = here.start(f"rank-{rank}", "-m", "live.trainers.ddp", str(here.folder), "1", **launch)
    return StepReports(
        {rank: process.stdout for rank, process in ranks.items()}, lambda rank: here.last_words(f"rank-{rank}")
    )


def follow(job: StepReports, agent: int, seconds: float) -> Stretch:
    """The steps of so many seconds; the first one, in which the agent may have been stopped or gone on, is left out."""
    used, began = sum(cpu_s(agent)), time.perf_counter()
    ends: list[float] = []
    while time.perf_counter() < began + seconds:
        ends += [time.perf_counter() for _ in job.follow(0.1)]
    lengths = [after - before for before, after in pairwise(ends[1:])]
    share = (sum(cpu_s(agent)) - used) / (time.perf_counter() - began)
    return Stretch(statistics.fmean(lengths), statistics.median(lengths), share)


def show(off: Sequence[Stretch], on: Sequence[Stretch]) -> None:
    print(
        f"\nsteps: {RANKS} ranks on {os.cpu_count()} cores, {len(on)} pairs of {STRETCH_S:g} s with and without the agent"
    )
    print(f"  a step without it takes {1000 * statistics.fmean(each.mean for each in off):.2f} ms")
    means = [math.log(b.mean / a.mean) for a, b in zip(off, on, strict=True)]
    # neighbours, the order turned round each time: what is left when there is nothing to be found
    nothing = [(-1) ** at * math.log(b.mean / a.mean) for at, (a, b) in enumerate(pairwise(off))]
    _, low, high = row("with / without, mean step", means)
    row("with / without, median step", [math.log(b.median / a.median) for a, b in zip(off, on, strict=True)])
    row("without / without, mean step", nothing)
    resolved = (high - low) / 2
    if low > MOST_SLOWER or resolved <= MOST_SLOWER:
        verdict = met(high < MOST_SLOWER)
    else:
        verdict = "cannot be told, what is resolved is coarser"
    print(f"  resolved here: {resolved:.2%} of a step; bound {MOST_SLOWER:.1%}: {verdict}")
    share = statistics.fmean(each.agent for each in on)
    print(f"  agent and tools took {share:.3%} of one core, which is {share / RANKS:.3%} of the cores that train")


def row(name: str, ratios: Sequence[float]) -> tuple[float, float, float]:
    """Prints and answers the mean of log ratios, and where it lies."""
    mean, low, high = interval(ratios)
    spread = statistics.stdev(ratios)
    print(f"  {name:28} {mean:+8.3%}   95 %: {low:+.3%} to {high:+.3%}   one pair: +-{spread:.2%}")
    return mean, low, high


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The mean, and between which values it lies with 95 % confidence (percentile bootstrap)."""
    chance = random.Random(1)
    means = sorted(statistics.fmean(chance.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    return statistics.fmean(ratios), means[DRAWS // 40], means[-DRAWS // 40 - 1]
