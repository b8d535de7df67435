"""What py-spy and /proc show of every process of a simulated job at one instant."""

from bisect import bisect_right
from dataclasses import dataclass
from math import inf
from random import Random

from accuracy.simulator.engine import LAUNCH_LIMIT, LAUNCH_S
from accuracy.simulator.faults.scene import Scene
from accuracy.simulator.faults.stalls import Stall
from accuracy.simulator.operators import among_operators
from accuracy.simulator.process import Process
from accuracy.simulator.program import Code, Mode, Op, Place
from accuracy.simulator.tails import tail
from accuracy.simulator.threads import helpers, thread_id
from accuracy.simulator.wording import Wording
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Reason, Thread

#: Agents look within so many seconds of each other, not at once.
SKEW_S = 0.3
CMDLINE = "/usr/bin/python3 -u train.py"


@dataclass(frozen=True)
class Habits:
    """How this job and its collector behave. `spins`: a host that waits for its device burns its core (CUDA's default).

    `proc`: the agents read /proc as well. `missing`: share of captures that fail for no reason of the process.
    """

    spins: bool
    proc: bool
    missing: float
    wording: Wording


def pid_of(rank: int) -> int:
    return 4000 + 7 * rank


def position(process: Process, time: float) -> tuple[Op, str, float]:
    """The operation the host is in at that time, what it does there, and how far it is through it (0 to 1)."""
    if time == inf:
        op = process.ops[process.at]
        done = process.counts[len(process.kernels) - 1] if process.kernels else 0
        room = LAUNCH_LIMIT - (process.launched - done)
        return op, process.why, min(max(room / op.amount, 0.0), 0.999) if op.amount else 0.0
    at = bisect_right(process.times, time)
    at = min(at, len(process.times) - 1)
    op = process.ops[at]
    began = process.times[at - 1] if at else 0.0
    took = process.times[at] - began
    through = min(max((time - began) / took, 0.0), 0.999) if took else 0.0
    if op.code in (Code.READ, Code.SYNC):
        return op, "device", through
    if op.code is Code.COLLECTIVE and op.mode is Mode.HOST:
        return op, "collective", through
    if op.code is Code.KERNEL and took > 3 * LAUNCH_S * op.amount:
        return op, "launch", through
    return op, "host" if op.code is Code.HOST else "compute", through


def traces(scene: Scene, habits: Habits, rng: Random, number: int, *, native: bool) -> tuple[ProcessTrace, ...]:
    """One trace for each rank that anything is known of; `number` counts the looks."""
    time = scene.looks[number]
    skew = {machine: rng.uniform(0.0, SKEW_S) for machine in scene.job.topology.machines}
    seen = []
    for process in scene.processes:
        instant = time
        if time != inf:  # what comes after the last simulated step is like what comes after the one before
            instant = (time + skew[scene.machine(process.rank)] + rng.uniform(0.0, 0.02)) % process.times[-1]
        trace = _trace(scene, habits, process, instant, number, rng, native=native)
        if trace is not None:
            seen.append(trace)
    return tuple(seen)


def _trace(
    scene: Scene, habits: Habits, process: Process, time: float, number: int, rng: Random, *, native: bool
) -> ProcessTrace | None:
    rank, pid = Rank(process.rank), pid_of(process.rank)
    lost = rng.random() < habits.missing
    if rank in scene.gone:
        return _gone(rank, pid, scene.gone[rank])
    op, why, through = position(process, time)
    stall = scene.stalls.get(rank) if why == "stall" else None
    if stall is None and why == "stopped" and rank not in scene.stopped:
        why = "device"
    state = _state(scene, habits, rank, pid, why, stall, number, time)
    if lost:
        return _lost(rank, pid, rng, state)
    if stall is not None and scene.hidden(rank, stall.unseen):
        return ProcessTrace(
            rank, pid=pid, state=state, missing=Missing(stall.reason, "Operation not permitted (os error 1)")
        )
    if rank in scene.stopped and scene.hidden(rank, 0.5):
        return ProcessTrace(rank, pid=pid, state=state, missing=Missing(Reason.STOPPED, "state T (stopped)"))
    threads = _threads(scene, habits, process, op, why, through, stall, number, native=native)
    return ProcessTrace(rank, pid=pid, threads=threads, state=state)


def _gone(rank: Rank, pid: int, reason: Reason) -> ProcessTrace:
    words = {
        Reason.ZOMBIE: "state Z (zombie)",
        Reason.EXITED: f"no process {pid}",
        Reason.NO_AGENT: "no answer within 10 s",
        Reason.TIMED_OUT: "no capture within 30 s",
    }
    state = ProcessState(pid, "Z", comm="python") if reason is Reason.ZOMBIE else None
    return ProcessTrace(rank, pid=pid, state=state, missing=Missing(reason, words[reason]))


def _lost(rank: Rank, pid: int, rng: Random, state: ProcessState | None) -> ProcessTrace | None:
    """A capture that failed on a process that has nothing; in IDEFICS-64 only 6-7 of 8 dumps came from healthy nodes."""
    reason, words = rng.choice(
        (
            (Reason.TIMED_OUT, "py-spy did not end within 20 s"),
            (Reason.TOOL_FAILED, "Error: Failed to get process executable name. Check that the process is running."),
            (Reason.NOT_PERMITTED, "Permission denied (os error 13)"),
            (None, ""),
        )
    )
    return ProcessTrace(rank, pid=pid, state=state, missing=Missing(reason, words)) if reason else None


def _state(
    scene: Scene, habits: Habits, rank: int, pid: int, why: str, stall: Stall | None, number: int, time: float
) -> ProcessState | None:
    if not habits.proc:
        return None
    if rank in scene.stopped:
        letter, wchan, syscall = "T", "do_signal_stop", "-1"
    elif stall is not None:
        letter, wchan, syscall = stall.state, stall.wchan[rank % len(stall.wchan)], stall.syscall
    elif _runs(scene, habits, why):
        letter, wchan, syscall = "R", "0", "running"
    else:
        letter, wchan, syscall = "S", "futex_do_wait", "202"
    spent = 1000.0 + 0.37 * rank + (number if letter == "R" else 0.0)
    # who sleeps where all is still is woken by nothing; a job that lives wakes each of its hosts some hundred times a second
    went = number if letter == "R" else 0.0 if time == inf else time
    ran, wakes = round(0.9 * spent + 0.1 * went, 2), 5000 + 3 * rank + round(200 * went)
    return ProcessState(pid, letter, wchan, syscall, round(spent, 2), "python3", CMDLINE, ran, wakes)


def _runs(scene: Scene, habits: Habits, why: str) -> bool:
    """Waiting for the device spins; a full launch queue sleeps (XTIMER-8 rank 3), and so do gloo's waits."""
    if why == "collective":
        return habits.spins and not scene.job.gloo
    return habits.spins if why == "device" else why in ("compute", "host")


def _threads(
    scene: Scene,
    habits: Habits,
    process: Process,
    op: Op,
    why: str,
    through: float,
    stall: Stall | None,
    number: int,
    *,
    native: bool,
) -> tuple[Thread, ...]:
    rank = process.rank
    pid = pid_of(rank)
    place: Place = op.place
    inner = (place.autograd if place.autograd is not None else place.main) + (stall.calls if stall else ())
    if op.code is Code.KERNEL and why in ("launch", "compute"):
        inner = among_operators(inner, through)
    if stall is not None and stall.moving:
        inner = (*inner[:-1], Frame(inner[-1].function, inner[-1].file, inner[-1].line + (7 * number + rank) % 9))
    below = tail(op, why, stall, gloo=scene.job.gloo, blocking=scene.job.blocking) if native else ()
    wording = habits.wording
    active = stall.active if stall else _runs(scene, habits, why)
    holds = stall.gil if stall else why == "host"
    frames = wording.written(inner, below, rank)
    if place.autograd is None:
        threads = [Thread("MainThread", pid, frames, active, holds)]
    else:
        waits = tail(op, "backward", None, gloo=False, blocking=False) if native else ()
        threads = [
            Thread("MainThread", pid, wording.written(place.main, waits, rank), False, False),
            Thread(None, thread_id(pid, 0), frames, active, holds),
        ]
    if stall is not None and stall.holder:
        threads.append(Thread("prefetch-0", thread_id(pid, 1), wording.written(stall.holder, (), rank), True, True))
    threads.extend(helpers(scene.job, process, pid))
    return tuple(threads)
