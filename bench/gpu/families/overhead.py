"""What hangdog costs a trainer on the GPU: step times with and without the agent, PyTorch's recorder, and the profiler ring."""

import math
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu.environment import ROOT
from gpu.families.stepping import SteppingJob, block_of
from gpu.kit import Measured, NotHere, Part, Stand
from overhead.stage import Stage, cpu_s, memory_mib, stage
from overhead.steps import MOST_SLOWER, interval

#: Where `make profiler` puts the library that NCCL loads.
PROFILER = ROOT / "agent" / "profiler" / "libhangdog_profiler.so"
#: Everything starts within that. Seconds.
_PATIENCE_S = 60.0
#: A command answers, and an agent ends, within that. Seconds.
_END_S = 10.0
#: Pairs of blocks, and how long a block is: for a real device and for a dry run. Seconds.
REAL, DRY = (6, 2.0), (2, 1.0)
#: Kinds of a job alternate so often, each time for so long: their processes stay, only one kind makes steps.
REAL_ROUNDS, DRY_ROUNDS = (6, 1.0), (3, 0.4)
#: A device takes its clocks up, an agent that came up reads everybody once: neither is measured meanwhile. Seconds.
SETTLE_S = 1.0
#: The bound for what records each collective in the trainer itself: so much of a step.
MOST_RECORDER = 0.01
#: Steps before anything is measured: kernels are chosen, the first collective connects.
WARM_UP = 5
#: PyTorch's recorder off and as it is recommended; the name of the variable changed with 2.9.
RECORDER = {
    kind: {"TORCH_FR_BUFFER_SIZE": size, "TORCH_NCCL_TRACE_BUFFER_SIZE": size}
    for kind, size in (("off", "0"), ("on", "2000"))
}


def parts(stand: Stand) -> Iterator[Part]:
    yield Part("overhead/agent", 40.0 if stand.dry else 60.0, agent)
    yield Part("overhead/recorder", 40.0, recorder)
    yield Part("overhead/profiler", 60.0 if stand.dry else 45.0, profiler)


def agent(stand: Stand) -> Measured:
    """The same job beside an agent that comes and goes: without, with, with, without."""
    pairs, block_s = DRY if stand.dry else REAL
    without: list[list[float]] = []
    beside: list[list[float]] = []
    shares: list[float] = []
    memory, sees = 0.0, False
    with stage(_PATIENCE_S) as here:
        job = SteppingJob(here, stand, "job")
        here.server()
        job.ready()
        job.steps(WARM_UP)
        job.go_on()
        time.sleep(SETTLE_S)
        for _ in range(pairs // 2):
            without.append(job.during(block_s))
            agent = here.agent()
            time.sleep(SETTLE_S)
            used, began = sum(cpu_s(agent.pid)), time.monotonic()
            beside += [job.during(block_s), job.during(block_s)]
            shares.append((sum(cpu_s(agent.pid)) - used) / (time.monotonic() - began))
            memory = max(memory, memory_mib(agent.pid, "VmHWM"))
            sees = sees or _watches(stand, here.server())
            _end(agent)
            without.append(job.during(block_s))
    compared = ratio(without, beside)
    figures = _blocks("without", without) | _blocks("with", beside) | compared
    figures |= {"agent CPU s/s": round(statistics.fmean(shares), 4), "agent MiB": round(memory, 1), "watched": sees}
    wrong = [] if stand.dry else list(too_slow("the agent", compared))
    return Measured(figures, wrong if sees else [*wrong, "the agent did not find the trainer"])


def _watches(stand: Stand, server: str) -> bool:
    """Whether the agent beside the job knows it: one that does not costs nothing."""
    command = [str(stand.python), "-P", "-m", "hangdog", "machines", "--server", server]
    try:
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_END_S)
    except subprocess.TimeoutExpired:
        return False
    return "overhead-job" in ran.stdout


def _end(agent: subprocess.Popen[bytes]) -> None:
    agent.terminate()
    try:
        agent.wait(_END_S)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait(_END_S)


def recorder(stand: Stand) -> Measured:
    """One rank with and without PyTorch's flight recorder, a collective for each parameter at each step."""
    with stage(_PATIENCE_S) as here:
        times, _ = _alternate(here, stand, RECORDER, 1)
    compared = ratio(times["off"], times["on"])
    figures = _blocks("without", times["off"]) | _blocks("with", times["on"]) | compared
    return Measured(figures, [] if stand.dry else list(too_slow("the flight recorder", compared, MOST_RECORDER)))


def profiler(stand: Stand) -> Measured:
    """Two ranks on one GPU, over loopback, with and without the library that NCCL loads: a single rank runs no collective."""
    if not PROFILER.is_file():
        raise NotHere(f"{PROFILER.relative_to(ROOT)} was not built: make profiler")
    kinds: dict[str, Mapping[str, str]] = {"off": {}, "on": {"NCCL_PROFILER_PLUGIN": str(PROFILER)}}
    with stage(_PATIENCE_S) as here:
        times, loaded = _alternate(here, stand, kinds, 2)
    compared = ratio(times["off"], times["on"])
    figures = _blocks("without", times["off"]) | _blocks("with", times["on"]) | compared | {"loaded": loaded["on"]}
    if stand.dry:
        return Measured(figures)
    wrong = list(too_slow("the profiler ring", compared, MOST_RECORDER))
    return Measured(figures, wrong if loaded["on"] else [*wrong, "NCCL did not load the library"])


def _alternate(
    here: Stage, stand: Stand, kinds: Mapping[str, Mapping[str, str]], world: int
) -> tuple[dict[str, list[list[float]]], dict[str, bool]]:
    """Blocks of steps of each kind in turn, one first and then the other; and which kinds have the library in memory."""
    rounds, block_s = DRY_ROUNDS if stand.dry else REAL_ROUNDS
    jobs = {kind: SteppingJob(here, stand, kind, world, environ) for kind, environ in kinds.items()}
    for job in jobs.values():
        job.ready()
    count = 0
    for job in jobs.values():
        job.steps(WARM_UP)
        count = max(count, block_of(job.steps(WARM_UP), block_s))
    times: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind in (*kinds,) if number % 2 else reversed((*kinds,)):
            times[kind].append(jobs[kind].steps(count + 1)[1:])
    return times, {kind: all(_has_library(pid) for pid in job.pids) for kind, job in jobs.items()}


def _has_library(pid: int) -> bool:
    return PROFILER.name in Path(f"/proc/{pid}/maps").read_text()


def ratio(base: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> dict[str, Any]:
    """How much longer the steps of the second are than those of the blocks beside them in the first, and within which bounds."""
    logs = [math.log(statistics.median(b) / statistics.median(a)) for a, b in zip(base, other, strict=True)]
    mean, low, high = interval(logs)
    return {
        "longer": _percent(mean),
        "longer at least": _percent(low),
        "longer at most": _percent(high),
        "pairs": len(logs),
    }


def too_slow(what: str, compared: Mapping[str, Any], most: float = MOST_SLOWER) -> Iterator[str]:
    """Only where chance does not explain it."""
    if compared["longer at least"] > 100 * most:
        yield (
            f"steps with {what} are {compared['longer']} % longer, at least {compared['longer at least']} % (95 %),"
            f" more than {100 * most:g} %"
        )


def _blocks(name: str, blocks: Sequence[Sequence[float]]) -> dict[str, Any]:
    steps = [step for block in blocks for step in block]
    return {
        f"{name}: step ms": round(1000 * statistics.median(steps), 3),
        f"{name}: blocks ms": [round(1000 * statistics.median(block), 2) for block in blocks],
        f"{name}: steps": len(steps),
    }


def _percent(log: float) -> float:
    return round(100 * math.expm1(log), 3)
