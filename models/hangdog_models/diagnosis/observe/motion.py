"""What moved between the rounds: a rank that leaves a wait proves that the job makes progress."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from statistics import median

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.work import FREED_AT_LEAST, NO_WORK, Work
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame
from hangdog_models.verdict import Activity

Look = Mapping[Rank, RankState]

_KNOWN_TO_KERNEL = (Activity.STORAGE, Activity.DEVICE_SYNC, Activity.STOPPED, Activity.DEAD)
#: No frame shows these. A rank that came to be so between two rounds has changed, whatever its frames.
_KNOWN_TO_KERNEL_ALONE = frozenset({Activity.STOPPED, Activity.DEAD})

#: Changed stacks of this share of the ranks are progress, wherever they were before: in a hang the waiters do not
#: change.
MOVED_SHARE = 0.5
#: A stall stated to be this long, in seconds, says as much as a second round: few phases of a job last longer.
STATED_S = 120.0
#: So many ranks that moved to another call site are progress, too. One busy culprit moves, two may, many victims do
#: not.
GONE_AT_LEAST, GONE_SHARE = 4, 0.05


#: So many rounds tell a wait for a device from one long call of a library: two may both meet the same call.
ROUNDS_THAT_LAST = 3


@dataclass(frozen=True, slots=True)
class Motion:
    """What moved in the last `rounds` rounds, counted from the last progress seen.

    The hang may have begun in between. A rank is `still`, `moving` or `travelling`, or in none of the three if unknown.

    - `still`: its stack is equal, line for line, in all of them (two or more).
    - `moving`: its lines changed at one call site, as in a loop.
    - `travelling`: its call site changed, so it does one thing after another.
    - `freed`: it left its wait between the last two rounds, and that was progress: the job is alive.
    - `stirring`: so many stacks changed in between that most of the job is at work, whether or not a wait ended.
    - `moved_on`: there were rounds before these, so the job made progress during the captures.
    - `working`: it used CPU between the rounds. A rank that waits for a device spins, so this proves nothing about a
      waiter.
    - `woken`: its thread was scheduled again and again between the rounds, so what it waits for arrives.
    - `counted`: the ranks whose wakes were counted; of others they are unknown.
    - `stepped`: its own progress advanced between the last two rounds, by step lines, heartbeat or collectives.
    - `helped`: its other processes used CPU between the rounds: a compiler, or loader workers.
    - `fed`: its thread was woken more often than captures wake it, and not by its own timer, so its data arrives.
    - `ticking`: its own timed sleeps ended one after another. It is at work, or polls for something that never comes.
    - `working_before`: it used CPU between two rounds of which the later is not the last.
    - `stated_s`: the seconds for which nothing was stated to have moved. One round then shows where ranks have been
      since.
    - `halted`: another process of theirs is stopped by a signal.
    - `running`: on a CPU in each round that captured it, even if that is one.
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
    halted: frozenset[Rank] = frozenset()

    @property
    def known(self) -> bool:
        return self.rounds > 1 or self.stated_s is not None

    @property
    def lasting(self) -> bool:
        """Whether what does not move has lasted for longer than one call of a library."""
        return self.rounds >= ROUNDS_THAT_LAST or self.stated_s is not None

    @property
    def over(self) -> str:
        """What it was observed over, as text."""
        return (
            f"{self.rounds} looks"
            if self.rounds > 1 or self.stated_s is None
            else f"the {self.stated_s:.0f} s that were stated"
        )


def observe(looks: Sequence[Look], work: Work = NO_WORK) -> Motion:
    """Compares the rounds of a job, oldest first."""
    start = 0
    freed: tuple[Rank, ...] = ()
    stirring: tuple[Rank, ...] = ()
    apart = _of_a_pool(looks)
    for at in range(1, len(looks)):
        freed, stirring = _progress(looks[at - 1], looks[at], apart)
        if freed or (stirring and at < len(looks) - 1):
            start = at
    kinds: dict[str, list[Rank]] = {"still": [], "moving": [], "travelling": [], "": []}
    running: set[Rank] = set()
    known: dict[tuple[int, ...], tuple[str, bool]] = {}  # for each sequence of states, which thousands of ranks share
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
    polling = {rank for rank, state in looks[-1].items() if state.polls} if looks else set()
    return Motion(
        seen,
        still,
        moving,
        travelling,
        freed,
        stirring,
        work.working - idle,
        work.woken - polling,
        work.counted,
        start > 0,
        work.stepped,
        work.helped,
        work.fed - polling,
        frozenset(rank for rank in work.ticking if rank in looks[-1] and looks[-1][rank].activity is not Activity.LOCK),
        working_before=work.working_before - idle,
        running=frozenset(running),
        halted=work.halted,
    )


def _no_more_than_waiters(last: Look, used: Mapping[Rank, float]) -> set[Rank]:
    """Sleeping ranks whose process used no more CPU than the median of ranks that sleep and wait for others.

    All processes of a job have threads beside the training thread, which poll while it sleeps.
    """
    waiters = [seconds for rank, seconds in used.items() if rank in last and last[rank].waits and last[rank].sleeping]
    if len(waiters) < FREED_AT_LEAST:
        return set()
    usual = median(waiters)
    return {rank for rank, seconds in used.items() if rank in last and last[rank].busy is not True and seconds <= usual}


def stated(motion: Motion, looks: Sequence[Look], stated_s: float) -> Motion:
    """The motion, where it was stated that nothing had moved for `stated_s` seconds: then one round is enough.

    A rank that does not run in it has been there as long. A rank that runs may be in a loop: only a second round would
    show it.
    """
    if motion.rounds > 1 or len(looks) != 1:
        return replace(motion, stated_s=stated_s)
    still = frozenset(rank for rank, state in looks[0].items() if _shows(state) and not state.busy)
    return replace(motion, still=still, stated_s=stated_s)


def _shows(state: RankState) -> bool:
    """Whether it can be compared between rounds: it has a stack, or a kernel state that needs none."""
    return bool(state.frames) or state.activity in _KNOWN_TO_KERNEL


def _kind(track: Sequence[RankState]) -> str:
    """What the states of one rank show: still, moving or travelling; empty where it was captured once."""
    if len(track) < 2:
        return ""
    if all(alike(state, track[0]) for state in track):
        return "still"
    return "moving" if _at_one_place(track) else "travelling"


def _at_one_place(track: Sequence[RankState]) -> bool:
    """Whether only lines differ, or most rounds show one function and the others what it calls.

    A loop that collects garbage checks the free memory now and then: it is still the same loop. A rank seen at another
    kind of activity has moved: a training function calls the loader, the model and the collectives.
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
    """Whether a rank was at one line, doing one thing, in two rounds.

    If only one of them shows native frames, the Python frames decide. The other capture did not collect native frames,
    so these prove no motion.
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


def _of_a_pool(looks: Sequence[Look]) -> AbstractSet[Rank]:
    """The ranks that were seen idle, where one that waits for no other stands at one line in all of many rounds.

    A worker of a pool takes a request and ends it, whatever becomes of the request of another worker. So its coming and
    going says nothing of the one that stands. Who waits for a lock of the job's is no such worker.
    """
    if len(looks) < ROUNDS_THAT_LAST:
        return frozenset()
    idle = {rank for look in looks for rank, state in look.items() if is_idle(state)}
    stands = idle and any(
        rank not in idle
        and state.frames
        and not state.waits
        and all(rank in look and alike(look[rank], state) for look in looks)
        for rank, state in looks[0].items()
    )
    return idle if stands else frozenset()


def is_idle(state: RankState) -> bool:
    """Whether it waits to be told what to do, as the workers of a service do."""
    return state.activity is Activity.IDLE and state.awaits is None and bool(state.frames)


def _progress(
    before: Look, after: Look, apart: AbstractSet[Rank] = frozenset()
) -> tuple[tuple[Rank, ...], tuple[Rank, ...]]:
    """The ranks freed from waits between two rounds, and those whose stacks changed; each empty below its threshold.

    `apart`: ranks of which no change counts.
    """
    held = _held(before, after)
    freed: list[Rank] = []
    left: list[Rank] = []
    changed: list[Rank] = []
    elsewhere = 0
    seen = 0
    for rank, then in before.items():
        now = after.get(rank)
        if now is None or not then.frames or not now.frames or rank in apart:
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
    """A test of whether a rank waits: by its frames, or because it is where most ranks are in both rounds.

    No fault is at one call site on most ranks.
    """
    most = [
        place
        for look in (before, after)
        for place, ranks in Counter(state.place for state in look.values() if state.frames).most_common(1)
        if ranks > MOVED_SHARE * len(look)
    ]
    crowd = most[0] if len(most) == 2 and most[0] == most[1] else None
    return lambda state: state.waits or (crowd is not None and state.place == crowd)


def _all_arrived(before: Look, after: Look, held: Callable[[RankState], bool]) -> bool:
    """Whether all ranks that were outside of every wait have entered one.

    Then what they held up goes on. One torn read of a stack cannot show that.
    """
    outside = [rank for rank, state in before.items() if not held(state)]
    return bool(outside) and all((now := after.get(rank)) is not None and held(now) for rank in outside)
