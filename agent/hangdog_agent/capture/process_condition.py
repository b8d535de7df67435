"""What the kernel says of a process before and after it is read, and which of it explains a lesser capture."""

from dataclasses import dataclass

from hangdog_agent.procfs import Proc, Stat
from hangdog_models.stack import Missing, Reason


@dataclass(frozen=True, slots=True)
class Asleep:
    """A thread in uninterruptible sleep; `switches` stays the same for as long as it has not woken."""

    tid: int
    comm: str
    wchan: str
    switches: int


@dataclass(frozen=True, slots=True)
class Condition:
    """One process at one moment: its own line, its tracer (0: none), its threads' states and its uninterruptible ones.

    `pids` are the names of the process from our pid namespace inwards: more than one, and it lives in another.
    """

    stat: Stat
    tracer: int
    pids: tuple[int, ...]
    states: dict[int, str]
    asleep: tuple[Asleep, ...]

    @property
    def may_be_stopped(self) -> bool:
        """Whether a tool may stop the process to read it: never one that is stopped, traced, or stuck in the kernel."""
        return not self.tracer and not self.asleep and not set(self.states.values()) & set("DTt")


def read(proc: Proc, pid: int) -> Condition | None:
    """The condition of a process now; None when it is gone."""
    stat = proc.stat(pid)
    status = proc.status(pid)
    if stat is None or status is None:
        return None
    states: dict[int, str] = {}
    asleep: list[Asleep] = []
    for tid in proc.tids(pid):
        thread = proc.stat(pid, tid)
        if thread is None:
            continue
        states[tid] = thread.state
        if thread.state == "D" and (more := proc.status(pid, tid)) is not None:
            asleep.append(Asleep(tid, thread.comm, proc.wchan(pid, tid), more.switches))
    return Condition(stat, status.tracer, status.pids, states, tuple(asleep))


def explain(before: Condition, after: Condition) -> Missing | None:
    """Why a look at this process was, or had to be, less than usual; None when nothing stood in its way.

    A thread counts as stuck in the kernel only if it slept uninterruptibly through the whole look: reading a file does
    so for moments.
    """
    if after.stat.state in "ZX":
        alive = sum(state not in "ZX" for state in after.states.values())
        what = (
            f"its main thread has ended, {alive} others live on"
            if alive
            else "has ended, its parent has not taken note"
        )
        return Missing(Reason.ZOMBIE, what)
    slept = {(thread.tid, thread.switches) for thread in before.asleep}
    stuck = [thread for thread in after.asleep if (thread.tid, thread.switches) in slept]
    leader = [thread for thread in stuck if thread.tid == after.stat.pid]
    if leader:
        return _uninterruptible("main thread", leader[0])
    if "T" in after.states.values():
        return Missing(Reason.STOPPED, "stopped by a signal (state T); read without attaching")
    if after.tracer or before.tracer:
        return Missing(Reason.TRACED, f"process {after.tracer or before.tracer} traces it; read without attaching")
    if stuck:
        return _uninterruptible(f"thread {stuck[0].tid} ({stuck[0].comm})", stuck[0])
    return None


def _uninterruptible(who: str, thread: Asleep) -> Missing:
    where = thread.wchan or "a place the kernel does not tell"
    return Missing(Reason.UNINTERRUPTIBLE, f"{who} sleeps uninterruptibly in {where}; read without attaching")
