"""What a few glances at one trainer show together: it stands still, loops at one place, compiles, writes, or works."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.stall_timeouts import Doing
from hangdog_models.verdict import Activity

#: Glances must lie so far apart to show that nothing moved; a line of Python takes less. Seconds.
APART_S = 2.4
#: Only the latest glances count, so many at least: who works now must not be called compiling for what it did before. Seconds.
RECENT_S, LEAST = 7.0, 3
#: So many glances in a row at one place make a loop: work that gets on is found at its most common place in a third of them.
LOOPS = 8
#: Places where a rank that stands there and moves bytes is writing or reading.
_STORAGE = (Activity.CHECKPOINT, Activity.STORAGE, Activity.DATALOADER)


@dataclass(frozen=True, slots=True)
class StackSample:
    """One look at a trainer at the moment `at`; `io_bytes` None when they may not be read."""

    at: float
    state: RankState
    io_bytes: int | None = None


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
