"""What a few glances at one trainer show together: it stands still, loops at one place, compiles, writes, or works."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hangdog_agent.discovery.cpu_activity import CpuActivity
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.stack import Frame
from hangdog_models.stall_timeouts import Doing
from hangdog_models.verdict import Activity

#: Glances must lie so far apart to show that nothing moved; a line of Python takes less. Seconds.
APART_S = 2.4
#: Only the latest glances count, so many at least: who works now must not be called compiling for what it did before. Seconds.
RECENT_S, LEAST = 7.0, 3
#: So many glances in a row at one place make a loop: work that gets on is found at its most common place in a third of them.
LOOPS = 8
#: Share of a core from which on a thread at one line is at work there, and from which on its children are.
_RUNS_SHARE, _HELPED_SHARE = 0.5, 0.1
#: Who wakes up that often between looks from sleeps that it set itself looks again and again whether something has come.
_POLLS = 1
#: Who waits there waits for somebody outside of the job, and gets something, or has it taken, whenever it is woken.
OUTSIDE = (Activity.NETWORK, Activity.STORAGE)
#: Bytes read and written at one line that are no mere line of a log.
_MOVED_BYTES = 1 << 16
#: Places where a rank that stands there and moves bytes is writing or reading.
_STORAGE = (Activity.CHECKPOINT, Activity.STORAGE, Activity.DATALOADER)


@dataclass(frozen=True, slots=True)
class StackSample:
    """One look at a trainer at the moment `at`; `io_bytes` None when they may not be read.

    `ran_s` its thread was on a core, `wakes` times it was put on one: None where the kernel does not count. `dozes`: it sleeps
    for a time it set itself. `helped_s` its children were on a core so far; `helper_bytes` its data loader's workers read.
    """

    at: float
    state: RankState
    io_bytes: int | None = None
    ran_s: float | None = None
    wakes: int | None = None
    dozes: bool = False
    helped_s: float = 0.0
    helper_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StackMotion:
    """What it does; `since` is the first glance of the same kind in a row."""

    doing: Doing
    since: float


def stack_motion_of(samples: Iterable[StackSample], apart_s: float = APART_S, loops: int = LOOPS) -> StackMotion | None:
    """What the latest glances, oldest first, show; None while they are too few or less than `apart_s` apart.

    `loops` glances in a row at one place make a loop.
    """
    samples = list(samples)
    if not samples:
        return None
    still = _alike(samples, lambda state: (state.activity, state.frames))
    if still[-1].at - still[0].at >= apart_s:
        return StackMotion(_of_still(still), still[0].at)
    recent = [sample for sample in samples if sample.at >= samples[-1].at - RECENT_S]
    recent = samples[-max(LEAST, len(recent)) :]
    if recent[-1].at - recent[0].at < apart_s:
        return None
    if any(sample.state.activity is Activity.COMPILE for sample in recent):
        return StackMotion(Doing.COMPILING, recent[0].at)
    place = _alike(samples, _place)
    looping = len(place) >= loops and place[-1].at - place[0].at >= apart_s
    return StackMotion(Doing.LOOPING, place[0].at) if looping else StackMotion(Doing.WORKING, recent[0].at)


def at_one_place(samples: Iterable[StackSample]) -> bool:
    """Whether all of them are at one place, which may be a line or a loop."""
    return len({_place(sample.state) for sample in samples}) == 1


def writes(samples: Sequence[StackSample]) -> bool:
    """Whether the latest is at a place of storage, and bytes have moved since the one before."""
    if len(samples) < 2 or samples[-1].state.activity not in _STORAGE:
        return False
    before, after = samples[-2].io_bytes, samples[-1].io_bytes
    return before is not None and after is not None and after > before


def meanwhile(samples: Iterable[StackSample], mode: CpuActivity, gpus: bool) -> Doing:
    """What who stands at one line, and waits neither for ranks nor for its device, does there, by what the kernel counts.

    `mode` is how its thread spends its time now: work alternates with waits, and what is stuck does one only. `gpus`: whether the
    machine has any; then a thread that runs at one line of a tensor's code may spin until its GPU is done.
    """
    samples = list(samples)
    still = _alike(samples, lambda state: (state.activity, state.frames))
    first, last = still[0], still[-1]
    span = last.at - first.at
    if span <= 0 or last.state.waits or last.state.activity in (Activity.STOPPED, Activity.DEAD):
        return Doing.STILL
    if last.helped_s - first.helped_s >= _HELPED_SHARE * span or last.helper_bytes > first.helper_bytes:
        return Doing.HELPED
    if mode is CpuActivity.LIVELY or (mode is CpuActivity.PINNED and (last.state.interpreting or not gpus)):
        return Doing.LOOPING  # as one line that calls a compiled step again and again, on cores that others want, too
    if (last.io_bytes or 0) - (first.io_bytes or 0) >= _MOVED_BYTES:
        return Doing.WRITING
    if first.ran_s is None or last.ran_s is None or first.wakes is None or last.wakes is None:
        return Doing.STILL
    runs = last.ran_s - first.ran_s >= _RUNS_SHARE * span and (last.state.interpreting or not gpus)
    dozing = [sample for sample in still if sample.dozes]
    polls = last.dozes and 2 * len(dozing) > len(still) and last.wakes - first.wakes >= _POLLS
    return Doing.LOOPING if runs or polls else Doing.STILL


def call_site(samples: Sequence[StackSample]) -> str:
    """The innermost function in which all samples are, in words for people; empty when they share none."""
    common = samples[-1].state.frames
    for sample in samples:
        frames = sample.state.frames
        same = 0
        while same < min(len(common), len(frames)) and _function(common[same]) == _function(frames[same]):
            same += 1
        common = common[:same]
    return " of ".join(reversed(_function(common[-1]))) if common else ""


def _function(frame: Frame) -> tuple[str, str]:
    return frame.file, frame.function


def _of_still(still: Sequence[StackSample]) -> Doing:
    activity = still[-1].state.activity
    if activity is Activity.COMPILE:  # waits for its compile workers
        return Doing.COMPILING
    return Doing.WRITING if writes(still) else Doing.STILL


def _place(state: RankState) -> object:
    return state.signature.digest if state.signature else state.activity


def _alike(samples: Sequence[StackSample], key: Callable[[RankState], object]) -> Sequence[StackSample]:
    """The latest glances in a row that have the same key."""
    wanted = key(samples[-1].state)
    start = len(samples) - 1
    while start and key(samples[start - 1].state) == wanted:
        start -= 1
    return samples[start:]
