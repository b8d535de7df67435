"""Masked waits: what the other ranks do that shows that a root may wait as they do, although no frame of it says so."""

from dataclasses import dataclass

from hangdog_models.diagnosis.hypotheses.hypothesis import Factor
from hangdog_models.diagnosis.hypotheses.single_round import held
from hangdog_models.diagnosis.observe.activity import CHILD, LOCK_FILE, RankState, sites
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.verdict import Activity

#: Names of barrier calls.
BARRIERS = ("barrier", "monitored_barrier")
#: The calls in which Python hands over to autograd's engine.
_ENGINE = ("_engine_run_backward", "custom_backward")
BARRIER_ONCE_MORE = likelihood("barrier_once_more")
HIDDEN_IN_BACKWARD = likelihood("hidden_in_backward")
FULL_QUEUES = likelihood("full_queues")


@dataclass(frozen=True, slots=True)
class Others:
    """Where most waiting ranks wait.

    - `barred`: at a barrier.
    - `let_one_work`: what they do, if it is what ranks do while one works for all.
    - `called`: in functions that backward calls.
    - `queued`: at full launch queues.
    - `way`: the functions, by name and file, through which ranks came to their barrier. A rank in one of these is on
      its way there, and has not gone round the loop again.
    """

    barred: bool
    let_one_work: str | None
    called: bool
    queued: bool
    way: frozenset[tuple[str, str]]


def others(look: Look, waits: Waits) -> Others:
    """Computed once a call site, for all roots together."""
    waiting = set(waits.waiting)
    here = [(state, len(waiting.intersection(ranks))) for state, ranks in sites(look)]

    def most(count: int) -> bool:
        return 2 * count > len(waiting)

    barred = at_barrier(look, waits)
    return Others(
        barred,
        let_one_work(look, waits),
        called=most(sum(n for state, n in here if _sleeps(state) and _called_by_backward(state))),
        queued=most(sum(n for state, n in here if state.queued and state.busy is False)),
        way=_to_barrier(look) if barred else frozenset(),
    )


def against(state: RankState, them: Others) -> list[Factor]:
    """The factors against blaming a root in this state, by where the others wait."""
    if state.activity is Activity.COMPUTE and state.busy is False and not state.interpreting and them.queued:
        return [Factor("it idles in an operator, and the others wait for room in their devices' queues", FULL_QUEUES)]
    if not _sleeps(state):
        return []
    if them.barred and sleeps_off_its_way(state, them):
        return [Factor("the others are at a barrier: it may wait for calls they make no more", BARRIER_ONCE_MORE)]
    if them.called:
        return [Factor("functions that backward calls hide waits of this job: it may be in one", HIDDEN_IN_BACKWARD)]
    return []


def sleeps_off_its_way(state: RankState, them: Others) -> bool:
    """Whether it sleeps in a call that no rule names, and not on the others' way to their barrier."""
    inside = state.signature.innermost if state.signature else None
    return _sleeps(state) and state.sleeping and inside not in them.way


def at_barrier(look: Look, waits: Waits) -> bool:
    """Whether most waiting ranks are at a barrier."""
    barred = sum(len(ranks) for state, ranks in sites(look) if state.waits and state.operation in BARRIERS)
    return 2 * barred > len(waits.waiting)


def let_one_work(look: Look, waits: Waits) -> str | None:
    """What most waiting ranks do while they let one work: wait at a barrier, or for a lock file; else None."""
    if at_barrier(look, waits):
        return "are at a barrier"
    return "wait for a lock file" if at_lock_file(look, waits) else None


def at_lock_file(look: Look, waits: Waits) -> bool:
    """Whether most waiting ranks poll for a file that another process has locked."""
    polling = {rank for state, ranks in sites(look) if state.operation == LOCK_FILE for rank in ranks}
    return 2 * len(polling.intersection(waits.waiting)) > len(waits.waiting)


def _to_barrier(look: Look) -> frozenset[tuple[str, str]]:
    barred = [state for state, _ in sites(look) if state.waits and state.operation in BARRIERS]
    return frozenset(place for state in barred if state.signature for place in state.signature.places)


def _sleeps(state: RankState) -> bool:
    """Whether it sleeps in a call that no rule names, and nothing shows that it does so for itself."""
    plain = state.activity is Activity.UNKNOWN and state.operation != CHILD and state.busy is False
    return plain and not state.waits and not held(state)


def _called_by_backward(state: RankState) -> bool:
    """Whether autograd's engine called the function it is in."""
    return state.signature is not None and any(name in _ENGINE for name, _ in state.signature.places[:-1])
