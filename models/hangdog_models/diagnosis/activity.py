"""What one rank is doing, and whom it waits for, read off its stacks, its kernel state or the reason it could not be seen."""

from dataclasses import dataclass

from hangdog_models.diagnosis.canonicalise import CanonicalFrame, Signature, canonicalise
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Rule, RuleSet, Wait, last_component
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

#: Where torch.distributed's own operations live: their caller tells more than they do.
_FRONT_DOORS = ("distributed_c10d.py", "_functional_collectives.py", "torch/_ops.py")
#: Names that a thousand different functions bear.
_TELLS_NOTHING = {"wrapper", "wrapped", "inner", "fn", "call", "main", "run", "unwrap"}

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
    signature = canonicalise(thread, rules)
    rule, at = _doing(signature, rules)
    if rule is not None and rule.operation == "backward":
        helper = _autograd(trace, rules)
        if helper is not None:
            signature, rule, at = helper
    busy = thread.active if state is None or not state.state else state.state == "R" or bool(thread.active)
    standing = _standing(trace, thread, signature, rules, rule, at, busy)
    if state is not None and state.state == "D" and not standing.waits:
        return Standing(
            trace.rank, Activity.STORAGE, Wait.NONE, label=standing.label or state.wchan, rule="state D",
            signature=signature, busy=False, frames=standing.frames, state=state, missing=trace.missing,
        )  # fmt: skip
    return standing


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
    signature = canonicalise(thread, rules) if thread else None
    label = _label(signature, len(signature.frames)) if signature else (trace.state.wchan if trace.state else "")
    rule = f"state {state}" if state in _DEAD | _STOPPED else "reason of the failed capture"
    return Standing(
        trace.rank, activity, Wait.NONE, label=label, rule=rule, signature=signature, busy=False,
        frames=thread.frames if thread else (), state=trace.state, missing=trace.missing,
    )  # fmt: skip


def _standing(
    trace: ProcessTrace, thread: Thread, signature: Signature, rules: RuleSet, rule: Rule | None, at: int,
    busy: bool | None,
) -> Standing:  # fmt: skip
    if rule is None:
        activity = Activity.COMPUTE if busy else Activity.UNKNOWN
        if thread.gil and busy is False:
            activity = Activity.GIL
        label = _label(signature, len(signature.frames))
        return Standing(
            trace.rank, activity, Wait.NONE, label=label, rule="no rule", signature=signature, busy=busy,
            frames=thread.frames, state=trace.state, missing=trace.missing,
        )  # fmt: skip
    frame = signature.frames[at]
    return Standing(
        rank=trace.rank,
        activity=rule.activity,
        wait=rule.wait,
        operation=rule.operation or _operation(signature, at, rule, frame),
        dim=rule.dim or _group(signature, at, rules),
        label=_label(signature, at),
        rule=rule.name,
        signature=signature,
        busy=busy,
        frames=thread.frames,
        state=trace.state,
        missing=trace.missing,
    )


def _doing(signature: Signature, rules: RuleSet) -> tuple[Rule | None, int]:
    """The rule that tells the activity and the index of its frame: innermost strong rule, else innermost weak one."""
    weak: tuple[Rule | None, int] = (None, -1)
    innermost = True
    for at in range(len(signature.frames) - 1, -1, -1):
        written = signature.frames[at]
        if not written.kept and written.rule != "native below Python":
            continue
        for rule in rules.doing:
            if (rule.innermost and not innermost) or not rule.matches(written.frame, written.name):
                continue
            if not rule.weak:
                return rule, at
            if weak[0] is None:
                weak = (rule, at)
        if written.kept:
            innermost = False
    return weak


def _autograd(trace: ProcessTrace, rules: RuleSet) -> tuple[Signature, Rule, int] | None:
    """In backward the main thread only waits; an autograd thread that runs Python may tell where it really is."""
    for thread in trace.threads:
        if thread.name == "MainThread" or thread.tid == trace.pid:
            continue
        if any(frame.file.endswith("torch/autograd/function.py") for frame in thread.frames):
            signature = canonicalise(thread, rules)
            rule, at = _doing(signature, rules)
            if rule is not None:
                return signature, rule, at
    return None


def _operation(signature: Signature, at: int, rule: Rule, frame: CanonicalFrame) -> str:
    """The outermost of the adjoining frames under the same rule: `all_gather_object`, not its inner `all_gather`."""
    name = frame.name
    for outer in range(at - 1, -1, -1):
        written = signature.frames[outer]
        if not written.kept:
            continue
        if not rule.matches(written.frame, written.name):
            break
        name = written.name
    return last_component(name)


def _group(signature: Signature, at: int, rules: RuleSet) -> str | None:
    """The parallel dimension of the innermost caller that a group rule knows."""
    for written in reversed(signature.frames[: at + 1]):
        if any(rule.boundary and rule.matches(written.frame, written.name) for rule in (*rules.drop, *rules.doing)):
            return None
        if written.kept:
            for rule in rules.group:
                if rule.matches(written.frame, written.name):
                    return rule.dim
    return None


def _label(signature: Signature, at: int) -> str:
    """The innermost kept frame with a telling name that calls into the operation, outside of its own front door."""
    plain = ""
    for written in reversed(signature.frames[:at]):
        if written.kept and not written.frame.file.endswith(_FRONT_DOORS):
            name = last_component(written.name)
            if not name.startswith(("__", "<")) and name not in _TELLS_NOTHING:
                return name
            plain = plain or name
    return plain
