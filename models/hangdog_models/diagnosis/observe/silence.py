"""Machines none of whose ranks could be reached: then the machine is silent, not one process."""

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.ranks import Rank
from hangdog_models.stack import MERELY_FAILED, Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity

_GONE = (Reason.NO_AGENT, Reason.TIMED_OUT, Reason.UNREACHABLE)


def merely_failed(state: RankState) -> bool:
    """Nothing is known of it, for reasons that lie in the capture."""
    missing = state.missing
    return state.activity is Activity.MISSING and missing is not None and missing.reason in MERELY_FAILED


def silent(machine: str, look: Look, topology: Topology) -> bool:
    """Whether two or more ranks of a machine are known, and every capture of them timed out, found no agent, or did not get there.

    A process that answers there speaks for the machine, also where its rank is not known.
    """
    ranks = topology.machines.get(machine, ())
    return len(ranks) > 1 and all(_gone(rank, look) and not look[rank].beside for rank in ranks)


def silent_ranks(look: Look, topology: Topology) -> frozenset[Rank]:
    """All ranks of silent machines."""
    missing = [rank for rank, state in look.items() if state.activity is Activity.MISSING]
    suspected = {topology.machine(rank) for rank in missing if _gone(rank, look)} - {None}
    return frozenset(
        rank for name in suspected if name and silent(name, look, topology) for rank in topology.machines[name]
    )


def _gone(rank: Rank, look: Look) -> bool:
    state = look.get(rank)
    if state is None or state.activity is not Activity.MISSING:
        return False
    return state.missing is not None and state.missing.reason in _GONE
