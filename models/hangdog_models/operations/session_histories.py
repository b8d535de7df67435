"""What a server saw of jobs through their agents, retold as the histories that `hangdog run` would have written of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from hangdog_models.operations.training_time import Timeline
from hangdog_models.recovery.recovery_history import Began, Entry, OutageOpened, Progressed, Steady, Troubled
from hangdog_models.recovery.settings import LadderSettings
from hangdog_models.recovery.trouble import Cause, Trouble

#: What agents call a job that nobody named: one after the other need not be the same, so none is a restart of another.
UNNAMED = "default"
#: Training for so long, a restart succeeded: what the ladder of `hangdog run` calls steady. Seconds.
STEADY_S = LadderSettings().steady_s
_STILL = Trouble(Cause.UNKNOWN, "it stood still")
_ENDED = Trouble(Cause.UNKNOWN, "it ended")


@dataclass(frozen=True, slots=True)
class SessionStall:
    """A job stood still from `since`, which was known from `noticed` on, and got on at `over`, if that was seen. Unix seconds."""

    since: float
    noticed: float
    over: float | None = None


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """A job as agents showed it without a break, from `began` to `until`, when it was last known to be there. Unix seconds.

    `start`: it was seen to begin, where before it was found there and nobody knows since when. `end`: it was seen to end;
    otherwise it is there still, or nobody knows what became of it.
    """

    job: str
    began: float
    until: float
    start: bool = True
    end: bool = False
    stalls: tuple[SessionStall, ...] = ()


def histories(sessions: Iterable[SessionHistory], restart_s: float) -> tuple[Timeline, ...]:
    """Of each job, by name, what is known without a gap, as one history, the earliest first.

    A session that was seen to begin within `restart_s` after one of the same job that was seen to end is its restart, and
    what lies between is lost; one that stands in the same standstill as the one before goes on with it. All else that lies
    between two sessions is unknown, and in no history. The start itself is not seen: a job gets on from when its ranks are
    there.
    """
    ordered = sorted(sessions, key=lambda one: (one.job, one.began, one.until, one.start, one.end, repr(one.stalls)))
    found = []
    for job, mine in groupby(ordered, key=lambda one: one.job):
        found += [Timeline(job, tuple(_entries(each)), _end(each)) for each in _stretches(list(mine), restart_s)]
    return tuple(found)


def _stretches(sessions: list[SessionHistory], restart_s: float) -> list[list[SessionHistory]]:
    found = [[sessions[0]]]
    for one, other in pairwise(sessions):
        if _restarted(one, other, restart_s) or _stood(one, other):
            found[-1].append(other)
        else:
            found.append([other])
    return found


def _restarted(one: SessionHistory, other: SessionHistory, restart_s: float) -> bool:
    known = one.end and other.start and one.job != UNNAMED
    return known and 0 <= other.began - _end([one]) <= restart_s


def _stood(one: SessionHistory, other: SessionHistory) -> bool:
    """Whether the standstill in which nobody looked any more is the one that is found when somebody does again."""
    if one.end or other.start or not (one.stalls and other.stalls):
        return False
    return one.stalls[-1].over is None and other.stalls[0].since <= _end([one]) <= other.began


def _end(sessions: Sequence[SessionHistory]) -> float:
    return max(sessions[-1].began, sessions[-1].until)


def _entries(sessions: list[SessionHistory]) -> Iterator[Entry]:
    """The history of sessions that follow each other; its moments never go back, whatever clocks did."""
    first, now, trouble = sessions[0], sessions[0].began, False
    yield OutageOpened(now, first.job)
    for before, one in zip((None, *sessions), sessions, strict=False):
        begins = before is None or before.end
        if begins:
            if before is not None and not trouble:
                yield Troubled(_end([before]), _end([before]), _ENDED)
            now, trouble = one.began, False
            yield Began(now, (), "")
            yield Progressed(now)
        until = max(now, _end([one]))
        for still in one.stalls:
            at = min(max(now, still.noticed), until)
            if not trouble:
                if at - now >= STEADY_S:
                    yield Steady(now + STEADY_S)
                yield Troubled(at, min(still.since, at), _STILL)
            now, trouble = at, True
            if still.over is not None:
                now, trouble = min(max(now, still.over), until), False
                yield Progressed(now)
        if not trouble and until - now >= STEADY_S:
            yield Steady(now + STEADY_S)
        now = until
