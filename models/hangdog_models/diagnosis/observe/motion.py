"""What moved between the rounds: a rank that leaves a wait proves that the job makes progress."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.work import FREED_AT_LEAST, NO_WORK, Work
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame
from hangdog_models.verdict import Activity

Look = Mapping[Rank, RankState]

_KNOWN_TO_KERNEL = (Activity.STORAGE, Activity.DEVICE_SYNC, Activity.STOPPED, Activity.DEAD)
#: What no frame tells: who came to be so between two looks has changed, whatever its frames.
_KNOWN_TO_KERNEL_ALONE = frozenset({Activity.STOPPED, Activity.DEAD})

#: From this share of the ranks, stacks that changed are progress whatever they changed from: a hang leaves its waiters still.
MOVED_SHARE = 0.5
#: A standstill of so many seconds that is stated says as much as a second look: a phase of a job seldom lasts longer.
STATED_S = 120.0
#: And from so many that went to another place: a culprit that is busy for ever does, two may, a crowd of victims does not.
GONE_AT_LEAST, GONE_SHARE = 4, 0.05


@dataclass(frozen=True, slots=True)
class Motion:
    """What moved in the last `rounds` looks, counted from the last progress seen: the hang may have begun in between.

    `still`: stack equal, line for line, in all of them (two or more). `moving`: lines changed at one place, as in a loop.
    `travelling`: the place itself changed, so the rank gets on with something. Unknown ranks are in none of the three.
    `freed`: the ranks that left their waits between the last two looks, where that was progress: the job is alive.
    `stirring`: so many stacks changed in between that most of the job is at work, whether or not a wait ended.
    `moved_on`: there were looks before that, so the job still made progress while it was being looked at.
    `working`: used the processor between the looks. Whoever waits for a device spins, so of a waiter it says nothing.
    `woken`: its thread was put on a processor again and again between the looks, so something came that it waits for; of those
    that are not in `counted` nobody knows how often.
    `stepped`: at these the job's own progress advanced between the last two looks, by its step lines, heartbeat or collectives.
    `helped`: processes of its own used the processor between the looks: a compiler, the workers of its loader.
    `fed`: its thread was woken more often than looks wake it, and not from a sleep that it set itself: whoever waits for data gets it.
    `ticking`: one sleep after the other that it set itself ended, so it goes round and round: at work, or asking for what never comes.
    `working_before`: used the processor between two looks of which the later one is not the last.
    `stated_s`: for so many seconds nothing had moved, as was stated; one look then shows where the ranks have stood since.
    `running`: on a processor in each look that met it, one look included.
    """

    rounds: int
    still: frozenset[Rank]
    moving: frozenset[Rank]
    travelling: frozenset[Rank] = frozenset()
    freed: tuple[Rank, ...] = ()
    stirring: tuple[Rank, ...] = ()
    working: frozenset[Rank] = frozenset()
    woken: frozenset[Rank] = frozenset()
    counted: frozenset[Rank] = frozenset()
    moved_on: bool = False
    stepped: tuple[Rank, ...] = ()
    helped: frozenset[Rank] = frozenset()
    fed: frozenset[Rank] = frozenset()
    ticking: frozenset[Rank] = frozenset()
    stated_s: float | None = None
    working_before: frozenset[Rank] = frozenset()
    running: frozenset[Rank] = frozenset()

    @property
    def known(self) -> bool:
        return self.rounds > 1 or self.stated_s is not None

    @property
    def over(self) -> str:
        """Over what it is known."""
        return (
            f"{self.rounds} looks"
            if self.rounds > 1 or self.stated_s is None
            else f"the {self.stated_s:.0f} s that were stated"
        )


def observe(looks: Sequence[Look], work: Work = NO_WORK) -> Motion:
    """Compares the looks at a job, oldest first."""
    start = 0
    freed: tuple[Rank, ...] = ()
    stirring: tuple[Rank, ...] = ()
    for at in range(1, len(looks)):
        freed, stirring = _progress(looks[at - 1], looks[at])
        if freed or (stirring and at < len(looks) - 1):
            start = at
    kinds: dict[str, list[Rank]] = {"still": [], "moving": [], "travelling": [], "": []}
    running: set[Rank] = set()
    known: dict[tuple[int, ...], tuple[str, bool]] = {}  # of each sequence of standings, which thousands of ranks share
    later = looks[start:]
    ranks: dict[Rank, None] = {}
    for look in later:
        ranks.update(dict.fromkeys(look))
    for rank, track in zip(ranks, zip(*(map(look.get, ranks) for look in later), strict=True), strict=True):
        key = tuple(map(id, track))
        found = known.get(key)
        if found is None:
            met = [state for state in track if state is not None and _shows(state)]
            found = known[key] = _kind(met), bool(met) and all(state.busy for state in met)
        kind, runs = found
        kinds[kind].append(rank)
        if runs:
            running.add(rank)
    still, moving, travelling = (frozenset(kinds[kind]) for kind in ("still", "moving", "travelling"))
    seen = len(looks) - start
    idle = _no_more_than_waiters(looks[-1], work.helpers_too) if looks else set()
    return Motion(
        seen,
        still,
        moving,
        travelling,
        freed,
        stirring,
        work.working - idle,
        work.woken,
        work.counted,
        start > 0,
        work.stepped,
        work.helped,
        work.fed,
        frozenset(rank for rank in work.ticking if rank in looks[-1] and looks[-1][rank].activity is not Activity.LOCK),
        working_before=work.working_before - idle,
        running=frozenset(running),
    )


def _no_more_than_waiters(last: Look, used: Mapping[Rank, float]) -> set[Rank]:
    """The sleepers whose process used no more of the processor than those of ranks that sleep and wait for others.

    All processes of a job have threads beside the one that trains, which look around while it sleeps.
    """
    waiters = [seconds for rank, seconds in used.items() if rank in last and last[rank].waits and last[rank].sleeping]
    if len(waiters) < FREED_AT_LEAST:
        return set()
    usual = median(waiters)
    return {rank for rank, seconds in used.items() if rank in last and last[rank].busy is not True and seconds <= usual}


def stated(motion: Motion, looks: Sequence[Look], stated_s: float) -> Motion:
    """What is seen to move or not, where it was stated that nothing had moved for so long: then one look tells, too.

    In it, who does not run has stood there as long. Who runs may be in a loop, which only a second look would tell.
    """
    if motion.rounds > 1 or len(looks) != 1:
        return replace(motion, stated_s=stated_s)
    still = frozenset(rank for rank, state in looks[0].items() if _shows(state) and not state.busy)
    return replace(motion, still=still, stated_s=stated_s)


def _shows(state: RankState) -> bool:
    """A stack to compare, or a kernel state that needs none: asleep in a disk or a driver in two looks is still."""
    return bool(state.frames) or state.activity in _KNOWN_TO_KERNEL


def _kind(track: Sequence[RankState]) -> str:
    """What the standings of one rank show; nothing where it was seen once."""
    if len(track) < 2:
        return ""
    if all(alike(state, track[0]) for state in track):
        return "still"
    return "moving" if _at_one_place(track) else "travelling"


def _at_one_place(track: Sequence[RankState]) -> bool:
    """Whether only lines differ, or most looks met it in one function and the others in what is called from there.

    A loop that collects garbage asks now and then how much memory is left: it goes nowhere for that. Who is met at
    something of another kind does: a function that trains calls the loader, the model and the collectives.
    """
    digest, times = Counter(map(_digest, track)).most_common(1)[0]
    if times == len(track):
        return True
    kinds = {(state.activity, state.rule) for state in track}
    if 2 * times <= len(track) or not digest or len(kinds) > 1:
        return False
    places = [state.signature.places if state.signature else () for state in track]
    home = places[[_digest(state) for state in track].index(digest)]
    return bool(home) and all(place[: len(home)] == home for place in places)


def alike(one: RankState, other: RankState) -> bool:
    """Whether a rank stood at one line, doing one thing, in two looks.

    Where only one of them shows native frames, the Python frames above them decide, and what the native ones tell beyond
    these is no motion: the other look did not ask.
    """
    if one.frames == other.frames:
        return one.activity is other.activity
    first, second = _python(one), _python(other)
    deeper = (len(first) < len(one.frames)) != (len(second) < len(other.frames))
    changed = one.activity is not other.activity and {one.activity, other.activity} & _KNOWN_TO_KERNEL_ALONE
    return deeper and bool(first) and first == second and not changed


def _python(state: RankState) -> tuple[Frame, ...]:
    return tuple(frame for frame in state.frames if not frame.native)


def _digest(state: RankState) -> str:
    return state.signature.digest if state.signature else ""


def _progress(before: Look, after: Look) -> tuple[tuple[Rank, ...], tuple[Rank, ...]]:
    """The ranks freed from their waits between two looks and those whose stacks changed, each where enough of them are."""
    held = _held(before, after)
    freed: list[Rank] = []
    left: list[Rank] = []
    changed: list[Rank] = []
    elsewhere = 0
    seen = 0
    for rank, then in before.items():
        now = after.get(rank)
        if now is None or not then.frames or not now.frames:
            continue
        seen += 1
        if then is not now and then.frames != now.frames and not alike(then, now):
            changed.append(rank)
            elsewhere += _digest(then) != _digest(now)
            if then.waits and then.place != now.place:
                freed.append(rank)
            if held(then) and not held(now) and _python(then) != _python(now):
                left.append(rank)
    stirring = len(changed) >= max(FREED_AT_LEAST, MOVED_SHARE * seen)
    stirring = stirring or elsewhere >= max(GONE_AT_LEAST, GONE_SHARE * seen)
    freed = sorted({*freed, *left})
    got_on = len(freed) >= FREED_AT_LEAST or (bool(left) and _all_arrived(before, after, held))
    return tuple(freed) if got_on else (), tuple(sorted(changed)) if stirring else ()


def _held(before: Look, after: Look) -> Callable[[RankState], bool]:
    """Whether a rank waits, by its frames, or by standing where most ranks stand in both looks: no fault is at one place in all."""
    most = [
        place
        for look in (before, after)
        for place, ranks in Counter(state.place for state in look.values() if state.frames).most_common(1)
        if ranks > MOVED_SHARE * len(look)
    ]
    crowd = most[0] if len(most) == 2 and most[0] == most[1] else None
    return lambda state: state.waits or (crowd is not None and state.place == crowd)


def _all_arrived(before: Look, after: Look, held: Callable[[RankState], bool]) -> bool:
    """Whether all who were outside of every wait have come to one: then what they held up goes on, and no torn read shows that."""
    outside = [rank for rank, state in before.items() if not held(state)]
    return bool(outside) and all((now := after.get(rank)) is not None and held(now) for rank in outside)
