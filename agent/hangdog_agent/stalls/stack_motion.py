"""What a few glances at one trainer show together: it stands still, loops at one place, compiles, writes, or works."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.activity import Standing
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
class Glance:
    """One look at a trainer at the moment `at`; `io_bytes` None when they may not be read."""

    at: float
    standing: Standing
    io_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Posture:
    """What it does; `since` is the first glance of the same kind in a row."""

    doing: Doing
    since: float


def posture(glances: Iterable[Glance], apart_s: float = APART_S, loops: int = LOOPS) -> Posture | None:
    """What the latest glances, oldest first, show; None while they are too few or less than `apart_s` apart.

    `loops` glances in a row at one place make a loop.
    """
    glances = list(glances)
    if not glances:
        return None
    still = _alike(glances, lambda standing: (standing.activity, standing.frames))
    if still[-1].at - still[0].at >= apart_s:
        return Posture(_of_still(still), still[0].at)
    recent = [glance for glance in glances if glance.at >= glances[-1].at - RECENT_S]
    recent = glances[-max(LEAST, len(recent)) :]
    if recent[-1].at - recent[0].at < apart_s:
        return None
    if any(glance.standing.activity is Activity.COMPILE for glance in recent):
        return Posture(Doing.COMPILING, recent[0].at)
    place = _alike(glances, _place)
    looping = len(place) >= loops and place[-1].at - place[0].at >= apart_s
    return Posture(Doing.LOOPING, place[0].at) if looping else Posture(Doing.WORKING, recent[0].at)


def settled(glances: Iterable[Glance]) -> bool:
    """Whether all of them are at one place, which may be a line or a loop."""
    return len({_place(glance.standing) for glance in glances}) == 1


def writes(glances: Sequence[Glance]) -> bool:
    """Whether the latest is at a place of storage, and bytes have moved since the one before."""
    if len(glances) < 2 or glances[-1].standing.activity not in _STORAGE:
        return False
    before, after = glances[-2].io_bytes, glances[-1].io_bytes
    return before is not None and after is not None and after > before


def _of_still(still: Sequence[Glance]) -> Doing:
    activity = still[-1].standing.activity
    if activity is Activity.COMPILE:  # waits for its compile workers
        return Doing.COMPILING
    return Doing.WRITING if writes(still) else Doing.STILL


def _place(standing: Standing) -> object:
    return standing.signature.digest if standing.signature else standing.activity


def _alike(glances: Sequence[Glance], key: Callable[[Standing], object]) -> Sequence[Glance]:
    """The latest glances in a row that have the same key."""
    wanted = key(glances[-1].standing)
    start = len(glances) - 1
    while start and key(glances[start - 1].standing) == wanted:
        start -= 1
    return glances[start:]
