"""What a rank is doing and what it waits for: read off its stacks, its kernel state, or the reason its capture failed."""

from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.observe import kernel_sleep
from hangdog_models.diagnosis.observe.call_site import CallSite, place_of
from hangdog_models.diagnosis.observe.canonicalise import Signature
from hangdog_models.diagnosis.observe.kernel_sleep import KernelWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import RuleSet, Wait
from hangdog_models.stack import Frame, Missing, ProcessTrace, Reason, Thread
from hangdog_models.training import training_thread
from hangdog_models.verdict import Activity

#: System calls that sleep for a peer on a socket, by number (x86_64) and by name as strace has them. Collectives use sockets in
#: threads of their own. A main thread in one of these waits for a service outside of the job.
_SOCKET_CALLS = {"42", "44", "45", "46", "47", "connect", "sendto", "recvfrom", "sendmsg", "recvmsg"}

_DEAD = {"Z", "X"}
_STOPPED = {"T"}
#: Stopped by a tracer, as by a debugger at a breakpoint: nothing is wrong with its machine.
_TRACED = {"t"}
#: The operation of a traced rank.
HELD = "held by a debugger"
#: The operation of a rank whose container or cgroup was frozen.
FROZEN = "frozen by its cgroup"
#: The operation of a rank that waits until another process releases a lock file.
LOCK_FILE = "lock file"
#: The operation of a rank that waits for a program it started.
CHILD = "subprocess"
_OF_REASON = {
    Reason.STOPPED: Activity.STOPPED,
    Reason.UNINTERRUPTIBLE: Activity.STORAGE,
    Reason.ZOMBIE: Activity.DEAD,
    Reason.EXITED: Activity.DEAD,
}
#: CPython's C functions (3.6 to 3.14) in which a thread takes a Python lock. `with lock:` has no Python frame of its
#: own.
_TAKES_LOCK = {
    "lock_PyThread_acquire_lock", "PyThread_acquire_lock_timed", "PyThread_acquire_lock", "rlock_acquire", "acquire_timed",
    "_PyMutex_LockTimed",
}  # fmt: skip
#: What a place that no rule knows is by what the kernel says that is waited for there.
_OF_AWAITED: Mapping[KernelWait, Activity] = {KernelWait.SOCKET: Activity.NETWORK, KernelWait.FILE_LOCK: Activity.IDLE}
_OPERATIONS: Mapping[KernelWait, str] = {KernelWait.FILE_LOCK: LOCK_FILE, KernelWait.CHILD: CHILD}
#: The rule name of a rank whose frames no rule matches.
NO_RULE = "no rule"
#: Waits for a service outside of the job.
SERVICES = (Activity.DATALOADER, Activity.STORAGE, Activity.CHECKPOINT, Activity.NETWORK)


#: The rule by which a rank is known whose main thread sleeps while another thread runs with the interpreter's lock.
HOLDER = "another thread holds the interpreter lock"


@dataclass(frozen=True, slots=True)
class RankState:
    """What a rank does at one moment.

    It names no rank, so thousands of ranks share one object. Cost depends on distinct states, not on ranks.

    - `operation`: what it performs (`all_reduce`).
    - `dim`: the parallel dimension of the group, where the frames show it.
    - `label`: the first frame of the caller (`get_grad_norm_fp32`); `caller` is the index of that frame.
    - `rule`: the name of the rule that matched.
    - `busy`: True when running, False when asleep, None when unknown.
    - `frames`: the stack with its line numbers, to compare rounds.
    - `interpreting`: it runs and holds the GIL, which every wait releases.
    - `remote_storage`: it sleeps in the client of a network file system.
    - `sleeping`: the kernel shows plain sleep, so it is neither stopped nor in a driver.
    - `dozing`: it sleeps by a timer that it set itself.
    - `awaits`: what it sleeps for by the kernel, where no rule knows its place.
    - `through_file`: it opens, reads or writes as one does a file, which the kernel may call a pipe.
    - `child`: the program that it started and waits for, in words; empty if it waits for none or that is not known.
    - `polls`: it wakes by a timer of the library that it waits in.
    - `writing`: the kernel function in which it sleeps, if writers sleep there on a sound disk, too.
    - `passing`: it is `writing`, and was not seen to stay there.
    - `astray`: it is at another line of that function than its peers.
    - `device_late`: since the round before its device came late to collectives (True), or waited in them for others
      (False); None if its profiler ring does not tell.
    - `beside`: it does not answer, and another process of its node does.
    - `in_kernel`: the kernel shows that it waits there for a disk or a driver, by its state or by frames of its own.
    """

    activity: Activity
    wait: Wait
    operation: str | None = None
    dim: str | None = None
    label: str = ""
    rule: str = ""
    signature: Signature | None = None
    busy: bool | None = None
    frames: tuple[Frame, ...] = ()
    interpreting: bool = False
    remote_storage: bool = False
    sleeping: bool = False
    missing: Missing | None = None
    caller: int = -1
    astray: bool = False
    dozing: bool = False
    awaits: KernelWait | None = None
    through_file: bool = False
    polls: bool = False
    child: str = ""
    writing: str = ""
    passing: bool = False
    device_late: bool | None = None
    beside: bool = False
    in_kernel: bool = False

    @property
    def place(self) -> tuple[Activity, str | None, str | None, str, bool]:
        """The call site: what ranks must have in common to be in the same operation.

        A broadcast's source and receivers have it in common, although their lines differ.
        """
        return (self.activity, self.operation, self.dim, self.label, self.astray)

    @property
    def line(self) -> int:
        """The line of the frame named by `label`; 0 where it is not known."""
        return self.frames[self.caller].line if 0 <= self.caller < len(self.frames) else 0

    @property
    def waits(self) -> bool:
        return self.wait is not Wait.NONE

    @property
    def queued(self) -> bool:
        """Whether it may wait for room in its device's launch queue. A launch may; an operator only if it sleeps."""
        launches = self.activity is Activity.LAUNCH or (self.activity is Activity.COMPUTE and self.sleeping)
        return launches and not self.interpreting


def sites(look: Mapping[Rank, RankState]) -> list[tuple[RankState, list[Rank]]]:
    """The distinct states of a round with their ranks, ascending, so that work is done once for each state."""
    found: dict[int, tuple[RankState, list[Rank]]] = {}
    before: RankState | None = None
    ranks: list[Rank] = []
    for rank in sorted(look):
        state = look[rank]
        if state is not before:  # neighbouring ranks often share a state
            before, ranks = state, found.setdefault(id(state), (state, []))[1]
        ranks.append(rank)
    return list(found.values())


def read(trace: ProcessTrace, rules: RuleSet) -> RankState:
    """The state of a rank's trainer process, which `trace` describes."""
    state = trace.state
    thread = main_thread(trace)
    by_kernel = state is not None and state.state in _DEAD | _STOPPED | _TRACED
    by_kernel = by_kernel or kernel_sleep.frozen(trace)
    if not by_kernel and trace.missing and trace.missing.reason in _OF_REASON:
        # A process in uninterruptible sleep may have been read without attaching: its stack says more.
        by_kernel = thread is None or trace.missing.reason is not Reason.UNINTERRUPTIBLE
    if by_kernel:
        return _by_kernel(trace, thread, rules)
    if thread is None:
        asleep = kernel_sleep.activity(state, ())
        label = state.wchan if state is not None and asleep is not None else ""
        far = kernel_sleep.remote_storage(trace.state)
        return RankState(
            asleep or Activity.MISSING,
            Wait.NONE,
            label=label,
            rule="no stack",
            remote_storage=far,
            missing=trace.missing,
            writing=kernel_sleep.writing(state),
            in_kernel=asleep is not None,
        )
    place = place_of(thread.frames, rules)
    holder = _holder(trace, thread)
    if holder is not None:
        label = place_of(holder.frames, rules).label or holder.name or ""
        return RankState(
            Activity.GIL, Wait.NONE, label=label, rule=HOLDER,
            signature=place.signature, busy=True, frames=(*thread.frames, *holder.frames),
            remote_storage=kernel_sleep.remote_storage(trace.state), missing=trace.missing,
        )  # fmt: skip
    if place.rule is not None and place.operation == "backward":
        place = _autograd(trace, rules) or place
    busy = thread.active if state is None or not state.state else state.state == "R" or bool(thread.active)
    label = place.label
    if place.rule is None:
        activity, wait = Activity.COMPUTE if busy else Activity.UNKNOWN, Wait.NONE
        if thread.gil and busy is False:
            activity = Activity.GIL
        elif busy is False and any(frame.native and frame.function in _TAKES_LOCK for frame in thread.frames):
            activity = Activity.LOCK
            label = next((frame.function for frame in reversed(thread.frames) if not frame.native), label)
    else:
        activity, wait = place.rule.activity, place.rule.wait
        if thread.gil and thread.active and (activity is Activity.LAUNCH or wait is Wait.SOME):
            # A launch and a wait for the device release the GIL: this is Python at work, or its collector.
            activity, wait = Activity.COMPUTE, Wait.NONE
        if activity is Activity.COMPUTE and busy is None:
            activity = Activity.UNKNOWN  # no tool saw it run
    if wait is Wait.NONE:
        activity = kernel_sleep.activity(state, thread.frames) or activity
    # what is opened and read by the functions for files may be a pipe: a file is waited for in state D
    awaits = kernel_sleep.awaited(state) if activity in (Activity.UNKNOWN, Activity.STORAGE) else None
    through_file = activity is Activity.STORAGE
    operation = None if awaits and through_file else place.operation
    activity = Activity.UNKNOWN if awaits else activity
    calls = state.syscall.partition(" ")[0] if state is not None and activity is Activity.UNKNOWN else ""
    if awaits is None and calls in _SOCKET_CALLS:
        awaits = KernelWait.SOCKET
    activity = _OF_AWAITED.get(awaits, activity) if awaits else activity
    return RankState(
        activity=activity,
        wait=wait,
        operation=operation or (_OPERATIONS.get(awaits) if awaits else None),
        dim=place.dim,
        label=label,
        rule=place.rule.name if place.rule else NO_RULE,
        signature=place.signature,
        busy=busy,
        frames=thread.frames,
        interpreting=bool(thread.gil and thread.active),
        remote_storage=kernel_sleep.remote_storage(trace.state),
        sleeping=state is not None and state.state == "S" and busy is False,
        missing=trace.missing,
        caller=place.caller,
        dozing=busy is not True and kernel_sleep.dozes(state, thread.frames),
        writing=kernel_sleep.writing(state),
        awaits=awaits,
        through_file=through_file,
        in_kernel=kernel_sleep.activity(state, thread.frames) is not None
        or any(f.file == "kernel" for f in thread.frames),
        polls=place.rule is not None and place.rule.polls,
    )


def main_thread(trace: ProcessTrace) -> Thread | None:
    """The thread that runs the training loop."""
    return training_thread(trace.threads, trace.pid)


def _holder(trace: ProcessTrace, main: Thread) -> Thread | None:
    """The thread that runs with the GIL while the main thread sleeps.

    In every such round that thread is why the main thread sleeps.
    """
    if main.active is not False or main.gil:
        return None
    return next((thread for thread in trace.threads if thread.gil and thread.active and thread is not main), None)


def _by_kernel(trace: ProcessTrace, thread: Thread | None, rules: RuleSet) -> RankState:
    state = trace.state.state if trace.state else ""
    frozen = kernel_sleep.frozen(trace)
    if state in _DEAD:
        activity = Activity.DEAD
    elif state in _STOPPED or frozen:
        activity = Activity.STOPPED
    elif state in _TRACED:
        activity = Activity.IDLE
    else:
        activity = _OF_REASON[trace.missing.reason] if trace.missing else Activity.UNKNOWN
        if activity is Activity.STORAGE and trace.state is not None and trace.state.wchan:
            activity = kernel_sleep.activity(trace.state, ()) or Activity.UNKNOWN
    place = place_of(thread.frames, rules) if thread else None
    label = place.label if place else ""
    by_state = state in _DEAD | _STOPPED | _TRACED or frozen
    rule = f"state {state}" if by_state else "reason of the failed capture"
    operation = HELD if state in _TRACED else FROZEN if frozen else None
    return RankState(
        activity, Wait.NONE, operation, label=label, rule=rule, signature=place.signature if place else None, busy=False,
        frames=thread.frames if thread else (), remote_storage=kernel_sleep.remote_storage(trace.state), missing=trace.missing,
        writing=kernel_sleep.writing(trace.state), in_kernel=activity is Activity.STORAGE,
    )  # fmt: skip


def _autograd(trace: ProcessTrace, rules: RuleSet) -> CallSite | None:
    """The call site of an autograd thread that runs Python; None where no rule matches one.

    In backward the main thread only waits. An autograd thread may show where the rank really is.
    """
    for thread in trace.threads:
        if thread.name == "MainThread" or thread.tid == trace.pid:
            continue
        if any(frame.file.endswith("torch/autograd/function.py") for frame in thread.frames):
            place = place_of(thread.frames, rules)
            if place.rule is not None:
                return place
    return None


def spins(state: RankState) -> bool:
    """Whether it runs in C without the interpreter's lock, as a read-back from the device does."""
    return state.activity is Activity.COMPUTE and bool(state.busy) and not state.interpreting
