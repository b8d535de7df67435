"""What py-spy and /proc show of every process of a simulated job at one instant."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from random import Random
from typing import NamedTuple

from accuracy.simulator.engine import LAUNCH_LIMIT, LAUNCH_S
from accuracy.simulator.faults import phases
from accuracy.simulator.faults.scene import Scene
from accuracy.simulator.faults.stalls import Stall
from accuracy.simulator.kernel import child_of, child_pid, pid_of, state_of
from accuracy.simulator.operators import among_operators
from accuracy.simulator.phases.phase import PHASE
from accuracy.simulator.phases.timeline import Moment
from accuracy.simulator.process import Process
from accuracy.simulator.program import Code, Mode, Op, Place
from accuracy.simulator.tails import of_stall, tail
from accuracy.simulator.threads import helpers, thread_id
from accuracy.simulator.wording import Wording
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Reason, Thread

#: Agents look within so many seconds of each other, not at once.
SKEW_S = 0.3
#: An operation that is issued takes microseconds: who is in it for longer waits.
WAITED_S = 1e-3
#: What a host does that waits for others.
WAITS = ("collective", "device", "launch")


@dataclass(frozen=True)
class Habits:
    """How this job and its collector behave. `spins`: a host that waits for its device burns its core (CUDA's default).

    `proc`: the agents read /proc as well. `missing`: share of captures that fail for no reason of the process.
    """

    spins: bool
    proc: bool
    missing: float
    wording: Wording


class Where(NamedTuple):
    """The operation a host is in, what it does there, how far it is through it (0 to 1), and for how long it has been in it."""

    op: Op
    why: str
    through: float
    since: float


def position(process: Process, time: float, *, waits: bool) -> Where:
    """Where the host is at that time. `waits`: it waits for what it issues itself, and does not leave that to its device."""
    if time == inf:
        op = process.ops[process.at]
        done = process.counts[len(process.kernels) - 1] if process.kernels else 0
        room = LAUNCH_LIMIT - (process.launched - done)
        through = min(max(room / op.amount, 0.0), 0.999) if op.amount else 0.0
        return Where(op, process.why, through, inf)
    at = bisect_right(process.times, time)
    at = min(at, len(process.times) - 1)
    op = process.ops[at]
    began = process.times[at - 1] if at else 0.0
    took = process.times[at] - began
    through = min(max((time - began) / took, 0.0), 0.999) if took else 0.0
    why = "host" if op.code is Code.HOST else "compute"
    if op.code in (Code.READ, Code.SYNC):
        why = "device"
    elif op.code is Code.COLLECTIVE and op.mode is Mode.HOST:
        why = "collective"
    elif op.code in (Code.COLLECTIVE, Code.WAIT, Code.P2P) and took > WAITED_S:
        why = "collective" if waits else "launch"
    elif op.code is Code.KERNEL and took > 3 * LAUNCH_S * op.amount:
        why = "launch"
    return Where(op, why, through, time - began)


def traces(scene: Scene, habits: Habits, rng: Random, number: int, *, native: bool) -> tuple[ProcessTrace, ...]:
    """One trace for each rank that anything is known of; `number` counts the looks."""
    time = scene.looks[number]
    skew = {machine: rng.uniform(0.0, SKEW_S) for machine in scene.job.topology.machines}
    seen: list[ProcessTrace] = []
    for process in scene.processes:
        instant = time
        if time != inf:
            instant = scene.instant(time, skew[scene.machine(process.rank)] + rng.uniform(0.0, 0.02))
        seen.extend(_traces(scene, habits, process, instant, number, rng, native=native))
    return tuple(seen)


def _traces(
    scene: Scene, habits: Habits, process: Process, time: float, number: int, rng: Random, *, native: bool
) -> Iterator[ProcessTrace]:
    """Its trace, if there is any, and that of a process which works for it."""
    rank, pid = Rank(process.rank), pid_of(process.rank)
    lost = rng.random() < habits.missing
    if rank in scene.gone:
        yield _gone(rank, pid, scene.gone[rank])
        return
    where = position(process, time, waits=scene.job.gloo or scene.job.blocking)
    moment = phases.moment(scene, rank, time, number) if where.op.kind == PHASE else None
    stall = scene.stalls.get(rank) if where.why == "stall" else None
    if stall is None and where.why == "stopped" and rank not in scene.stopped:
        where = where._replace(why="device")
    state = None
    if habits.proc:
        waits_s = where.since if where.why in WAITS else 0.0
        runs = _runs(scene, habits, where.why)
        state = state_of(scene, rank, number=number, runs=runs, waits_s=waits_s, stall=stall, moment=moment)
        if moment is not None and moment.step.child:
            yield ProcessTrace(rank, moment.step.child, child_pid(rank), state=child_of(rank, moment))
    if lost:
        if (trace := _lost(rank, pid, rng, state)) is not None:
            yield trace
    elif stall is not None and scene.hidden(rank, stall.unseen):
        yield _unseen(rank, pid, stall.reason, state)
    elif moment is not None and rng.random() < moment.step.unseen:
        yield _unseen(rank, pid, Reason.UNINTERRUPTIBLE, state)
    elif rank in scene.stopped and scene.hidden(rank, 0.5):
        yield ProcessTrace(rank, pid=pid, state=state, missing=Missing(Reason.STOPPED, "state T (stopped)"))
    else:
        threads = _threads(scene, habits, process, where, stall, moment, number, native=native)
        yield ProcessTrace(rank, pid=pid, threads=threads, state=state)


def _unseen(rank: Rank, pid: int, reason: Reason, state: ProcessState | None) -> ProcessTrace:
    return ProcessTrace(rank, pid=pid, state=state, missing=Missing(reason, "Operation not permitted (os error 1)"))


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


def _runs(scene: Scene, habits: Habits, why: str) -> bool:
    """Waiting for the device spins; a full launch queue sleeps (XTIMER-8 rank 3), and so do gloo's waits."""
    if why == "collective":
        return habits.spins and not scene.job.gloo
    return habits.spins if why == "device" else why in ("compute", "host")


def _threads(
    scene: Scene, habits: Habits, process: Process, where: Where, stall: Stall | None, moment: Moment | None,
    number: int, *, native: bool,
) -> tuple[Thread, ...]:  # fmt: skip
    rank, op, why = process.rank, where.op, where.why
    pid = pid_of(rank)
    place: Place = op.place
    inner = (place.autograd if place.autograd is not None else place.main) + (stall.calls if stall else ())
    if op.code is Code.KERNEL and why in ("launch", "compute"):
        inner = among_operators(inner, where.through)
    if moment is not None:
        inner = _moved((*inner, *moment.step.calls), moment.line)
    if stall is not None and stall.moving:
        inner = _moved(inner, (7 * number + rank) % 9)
    below: tuple[Frame, ...] = ()
    if native:
        gloo, blocking = scene.job.gloo, scene.job.blocking
        below = of_stall(moment.step.native) if moment else tail(op, why, stall, gloo=gloo, blocking=blocking)
    wording = habits.wording
    active, holds = _runs(scene, habits, why), why == "host"
    if stall is not None:
        active, holds = stall.active, stall.gil
    elif moment is not None:
        active, holds = moment.step.state == "R", moment.step.gil
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
    if moment is not None and moment.step.beside:
        beside = wording.written(moment.step.beside, (), rank)
        threads.append(Thread("ThreadPoolExecutor-0_0", thread_id(pid, 1), beside, False, False))
    threads.extend(helpers(scene.job, process, pid))
    return tuple(threads)


def _moved(calls: tuple[Frame, ...], lines: int) -> tuple[Frame, ...]:
    """The innermost frame so many lines further on."""
    return (*calls[:-1], Frame(calls[-1].function, calls[-1].file, calls[-1].line + lines))
