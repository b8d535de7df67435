"""What a single round shows: which ranks are held where no training step rests, and which merely run at that moment."""

from collections.abc import Sequence

from hangdog_models.diagnosis.hypotheses.activity_odds import LOAD
from hangdog_models.diagnosis.observe.activity import CHILD, RankState, sites
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.waits.collective_counters import BY_DEVICE
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity

#: States that no healthy process stays in, so that one round is enough.
LASTING = (Activity.STOPPED, Activity.DEAD)
#: Sleeps that are no part of a training step, which waits for its loader, its device and its peers. In 1,031 simulated
#: single rounds of jobs that are healthy, or that their code stops, no rank is held. In 625 of 700 with two faulty
#: hosts one is.
_HELD = (*LASTING, Activity.LOCK, Activity.GIL, Activity.GC, Activity.NETWORK, Activity.STORAGE, Activity.DEVICE_SYNC)


def held(state: RankState) -> bool:
    """Whether a root is held where no step of training rests: by the kernel, a lock, a service or a child process."""
    if state.interpreting or state.rule == BY_DEVICE:
        return False
    child = state.activity is Activity.UNKNOWN and state.operation == CHILD
    loads = state.activity is Activity.COMPILE and state.operation == LOAD
    return state.activity in _HELD or child or loads


def at_rest(states: Sequence[RankState]) -> bool:
    """Whether roots captured once are stuck: some are held, and all others but one at most sleep.

    That one runs Python, as in an endless loop: so in 199 of 700 simulated single rounds with two faulty hosts. Without
    a machine at fault it is so in none of 1,315.

    Two that run are a step at work. Such pairs are alone in 76 of 532 rounds of healthy jobs, and in 19 of those 700.
    """
    running = [state for state in states if state.interpreting]
    asleep = all(held(state) or state.busy is False for state in states if not state.interpreting)
    return asleep and len(running) <= 1 and any(map(held, states))


def restless(look: Look, waits: Waits, topology: Topology) -> frozenset[Rank]:
    """The ranks at work in a single round, and the roots that their work exonerates: in a stuck job all ranks wait.

    Two exceptions:

    - One machine alone is at work, and all other roots are held or may be queued. It is at work by running Python, or
      by peers that spin beside a held rank of it. Then no rank is restless.
    - Queued ranks that make up a whole process group with a rank at work wait for it.
    """
    at_work = _at_work(look, waits, topology)
    on = {topology.machine(rank) or rank for rank in at_work}
    roots = {rank for rank in waits.roots if look[rank].activity is not Activity.MISSING}
    queued = frozenset(rank for rank in roots - at_work if look[rank].queued)
    others = roots - at_work - queued
    beside = on == {topology.machine(rank) or rank for rank in others}
    alone = len(on) == 1 and at_work <= roots and (beside or all(look[rank].interpreting for rank in at_work))
    if not at_work or (alone and others and all(held(look[rank]) for rank in others)):
        return frozenset()
    return at_work | (roots - _awaiting(at_work, queued, topology))


def _awaiting(at_work: frozenset[Rank], queued: frozenset[Rank], topology: Topology) -> set[Rank]:
    """The queued ranks that make up a whole process group with one rank at work."""
    groups = {
        group
        for rank in (at_work if queued else ())
        for dim in topology.groups
        if dim != WORLD and (group := topology.group(dim, rank)) is not None
    }
    whole = [group for group in groups if len(at_work.intersection(group)) == 1 and queued.union(at_work) >= set(group)]
    return {rank for group in whole for rank in group} - at_work


def _at_work(look: Look, waits: Waits, topology: Topology) -> frozenset[Rank]:
    """Ranks whose hosts run Python, which no wait does, and roots that run or whose devices are behind.

    A device that is behind does not count on a machine with a held rank.
    """
    runs = {rank for state, ranks in sites(look) if state.interpreting for rank in ranks}
    busy = {rank for rank in waits.roots if look[rank].activity is Activity.COMPUTE and not look[rank].queued}
    stuck = {topology.machine(rank) for rank in waits.roots if held(look[rank])} - {None}
    behind = {r for r in waits.roots if look[r].rule == BY_DEVICE and topology.machine(r) not in stuck}
    return frozenset(runs | busy | behind)
