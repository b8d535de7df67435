"""What a few stack samples of one trainer show together: it is unchanged, loops, compiles, writes, or works."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hangdog_agent.discovery.cpu_activity import CpuActivity
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.kernel_sleep import OF_ANOTHER_PROCESS
from hangdog_models.stack import Frame
from hangdog_models.stall_timeouts import Doing
from hangdog_models.verdict import Activity

#: Samples must be so far apart to show that nothing moved; a line of Python takes less. Seconds.
APART_S = 2.4
#: Only the latest samples count, so many at least: a rank at work is not compiling because it did before. Seconds.
RECENT_S, LEAST = 7.0, 3
#: So many samples in a row at one call site are a loop: normal work is at its most common one in a third of them.
LOOPS = 8
#: A thread at one line is at work from this share of a core on, and so are its children.
_RUNS_SHARE, _HELPED_SHARE = 0.5, 0.1
#: A thread that wakes so often between samples, from sleeps that it set itself, polls.
_POLLS = 1
#: A wait here is for something outside of the job.
_OUTSIDE = (Activity.NETWORK, Activity.STORAGE)
#: Bytes read and written at one line: more than a line of a log.
_MOVED_BYTES = 1 << 16
#: Call sites at which a rank that moves bytes is writing or reading.
_STORAGE = (Activity.CHECKPOINT, Activity.STORAGE, Activity.DATALOADER)


@dataclass(frozen=True, slots=True)
class StackSample:
    """One stack sample of a trainer at the moment `at`; `io_bytes` is None if they may not be read.

    - `ran_s`: seconds on a core, `wakes`: times it was put on one; None if the kernel does not count.
    - `dozes`: it sleeps for a time that it set itself.
    - `helped_s`: seconds its children were on a core; `helper_bytes`: what its data loader's workers read.
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
    """What it does; `since` is the first sample of the same kind in a row."""

    doing: Doing
    since: float


def stack_motion_of(samples: Iterable[StackSample], apart_s: float = APART_S, loops: int = LOOPS) -> StackMotion | None:
    """What the latest samples, oldest first, show; None while they are too few or less than `apart_s` apart.

    `loops` samples in a row at one call site are a loop.
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
    """Whether all of them are at one call site, which may be a line or a loop."""
    return len({_place(sample.state) for sample in samples}) == 1


def waits_outside(state: RankState) -> bool:
    """Whether it waits for something outside of the rank and its peers: each wake-up brings or takes some data."""
    return state.activity in _OUTSIDE or _feeds(state)


def writes(samples: Sequence[StackSample]) -> bool:
    """Whether the latest is at a call site of storage, or at another process's pipe, and bytes have moved since the one before."""
    if len(samples) < 2:
        return False
    state = samples[-1].state
    if state.activity not in _STORAGE and not _feeds(state):
        return False
    before, after = samples[-2].io_bytes, samples[-1].io_bytes
    return before is not None and after is not None and after > before


def _feeds(state: RankState) -> bool:
    """Whether it reads or writes what may be its data, through a pipe that another process feeds or drains."""
    return state.through_file and state.awaits in OF_ANOTHER_PROCESS


def meanwhile(samples: Iterable[StackSample], mode: CpuActivity, gpus: bool) -> Doing:
    """What a rank does at one line, where it waits neither for ranks nor for its device, by what the kernel counts.

    `mode` is its CPU activity: work alternates with waits, a stuck thread does one only. `gpus`: whether the machine has any;
    then a thread that runs at one line of a tensor's code may spin until its GPU is done.
    """
    samples = list(samples)
    still = _alike(samples, lambda state: (state.activity, state.frames))
    first, last = still[0], still[-1]
    span = last.at - first.at
    if span <= 0 or last.state.waits or last.state.activity in (Activity.STOPPED, Activity.DEAD):
        return Doing.STILL
    if last.helped_s - first.helped_s >= _HELPED_SHARE * span or last.helper_bytes > first.helper_bytes:
        return Doing.HELPED
    if mode is CpuActivity.ACTIVE or (mode is CpuActivity.BUSY and (last.state.interpreting or not gpus)):
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
    """The innermost function that all samples share, for people; empty if they share none."""
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
    """The latest samples in a row that have the same key."""
    wanted = key(samples[-1].state)
    start = len(samples) - 1
    while start and key(samples[start - 1].state) == wanted:
        start -= 1
    return samples[start:]
