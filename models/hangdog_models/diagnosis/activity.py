"""What one rank is doing, and whom it waits for, read off its stacks, its kernel state or the reason it could not be seen."""

from dataclasses import dataclass

from hangdog_models.diagnosis.canonicalise import Signature
from hangdog_models.diagnosis.place import Place, place_of
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import RuleSet, Wait
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Reason, Thread
from hangdog_models.verdict import Activity

#: Kernel functions in which a sleeper waits for a service on the network: compared by prefix, suffixes vary.
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "rpc_",
    "fuse",
    "request_wait_answer",
    "ceph",
    "lustre",
    "ldlm_",
    "cl_sync",
    "gpfs",
    "cxi",
)

#: System calls that sleep for a peer on a socket (x86_64: connect, sendto, recvfrom, sendmsg, recvmsg). Collectives use
#: sockets in threads of their own, so a main thread in one of these waits for somebody outside of the job.
_SOCKET_CALLS = {"42", "44", "45", "46", "47"}

_DEAD = {"Z", "X"}
_STOPPED = {"T", "t"}
_OF_REASON = {
    Reason.STOPPED: Activity.STOPPED,
    Reason.UNINTERRUPTIBLE: Activity.STORAGE,
    Reason.ZOMBIE: Activity.DEAD,
    Reason.EXITED: Activity.DEAD,
}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one rank stands at one moment.

    `operation` is what it performs (`all_reduce`), `label` the first frame of the caller (`get_grad_norm_fp32`), `dim`
    the parallel dimension of the group where the frames tell it. `rule` says which rule read it. `busy` is True when it
    was running, False when asleep, None when unknown; `frames` is the stack with its line numbers, to compare rounds.
    """

    rank: Rank
    activity: Activity
    wait: Wait
    operation: str | None = None
    dim: str | None = None
    label: str = ""
    rule: str = ""
    signature: Signature | None = None
    busy: bool | None = None
    frames: tuple[Frame, ...] = ()
    state: ProcessState | None = None
    missing: Missing | None = None

    @property
    def place(self) -> tuple[Activity, str | None, str | None, str]:
        """What ranks must have in common to be in the same operation: its source and its receivers have."""
        return (self.activity, self.operation, self.dim, self.label)

    @property
    def waits(self) -> bool:
        return self.wait is not Wait.NONE

    @property
    def remote_storage(self) -> bool:
        """It sleeps in a network file system's client."""
        return self.state is not None and self.state.wchan.startswith(NETWORK_FILE_SYSTEMS)


def read(trace: ProcessTrace, rules: RuleSet) -> Standing:
    """The standing of the process `trace` describes, which is a rank's trainer."""
    state = trace.state
    thread = main_thread(trace)
    by_kernel = state is not None and state.state in _DEAD | _STOPPED
    if not by_kernel and trace.missing and trace.missing.reason in _OF_REASON:
        # A process in uninterruptible sleep may still have been read without attaching: then its stack says more.
        by_kernel = thread is None or trace.missing.reason is not Reason.UNINTERRUPTIBLE
    if by_kernel:
        return _by_kernel(trace, thread, rules)
    if thread is None:
        activity = Activity.STORAGE if state is not None and state.state == "D" else Activity.MISSING
        label = state.wchan if state is not None and activity is Activity.STORAGE else ""
        return Standing(
            trace.rank, activity, Wait.NONE, label=label, rule="no stack", state=state, missing=trace.missing
        )
    place = place_of(thread.frames, rules)
    if place.rule is not None and place.operation == "backward":
        place = _autograd(trace, rules) or place
    busy = thread.active if state is None or not state.state else state.state == "R" or bool(thread.active)
    if place.rule is None:
        activity, wait = Activity.COMPUTE if busy else Activity.UNKNOWN, Wait.NONE
        if thread.gil and busy is False:
            activity = Activity.GIL
    else:
        activity, wait = place.rule.activity, place.rule.wait
        if activity is Activity.COMPUTE and busy is None:
            activity = Activity.UNKNOWN  # no tool saw it run
    if state is not None and state.state == "D" and wait is Wait.NONE:
        activity = Activity.STORAGE
    elif state is not None and activity is Activity.UNKNOWN and state.syscall.partition(" ")[0] in _SOCKET_CALLS:
        activity = Activity.NETWORK
    return Standing(
        rank=trace.rank,
        activity=activity,
        wait=wait,
        operation=place.operation,
        dim=place.dim,
        label=place.label,
        rule=place.rule.name if place.rule else "no rule",
        signature=place.signature,
        busy=busy,
        frames=thread.frames,
        state=state,
        missing=trace.missing,
    )


def main_thread(trace: ProcessTrace) -> Thread | None:
    """The thread that runs the training loop: by Python's name, else by its id, else the only one."""
    for thread in trace.threads:
        if thread.name == "MainThread":
            return thread
    for thread in trace.threads:
        if trace.pid is not None and thread.tid == trace.pid:
            return thread
    named = [thread for thread in trace.threads if thread.name is None]
    return named[-1] if len(trace.threads) == len(named) and named else None


def _by_kernel(trace: ProcessTrace, thread: Thread | None, rules: RuleSet) -> Standing:
    state = trace.state.state if trace.state else ""
    if state in _DEAD:
        activity = Activity.DEAD
    elif state in _STOPPED:
        activity = Activity.STOPPED
    else:
        activity = _OF_REASON[trace.missing.reason] if trace.missing else Activity.UNKNOWN
    place = place_of(thread.frames, rules) if thread else None
    label = place.label if place else ""
    rule = f"state {state}" if state in _DEAD | _STOPPED else "reason of the failed capture"
    return Standing(
        trace.rank, activity, Wait.NONE, label=label, rule=rule, signature=place.signature if place else None, busy=False,
        frames=thread.frames if thread else (), state=trace.state, missing=trace.missing,
    )  # fmt: skip


def _autograd(trace: ProcessTrace, rules: RuleSet) -> Place | None:
    """In backward the main thread only waits; an autograd thread that runs Python may tell where it really is."""
    for thread in trace.threads:
        if thread.name == "MainThread" or thread.tid == trace.pid:
            continue
        if any(frame.file.endswith("torch/autograd/function.py") for frame in thread.frames):
            place = place_of(thread.frames, rules)
            if place.rule is not None:
                return place
    return None
