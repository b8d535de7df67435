"""Ranks that a rank without a capture holds up as far as one can see: they show no fault of their own."""

from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.observe.silence import merely_failed
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.topology import WORLD, Topology


def behind_unseen(look: Look, waits: Waits, topology: Topology) -> frozenset[Rank]:
    """The ranks whose known waits in narrow groups all lead to ranks without a capture, and these ranks' tensor peers.

    A tensor peer's device waits for such a rank in each layer, while its host may be in a message by then. A wait of
    all ranks leads to everybody, so it explains nobody.
    """
    failed = {rank for rank in waits.roots if merely_failed(look[rank])}
    if not failed:
        return frozenset()
    peers = {peer for rank in failed for peer in topology.group("tp", rank) or () if peer not in failed}
    awaiting = [hold for hold in waits.holds if hold.awaited and hold.dim not in (None, WORLD) and not hold.inferred]
    found = failed | peers
    grown = True
    while grown:
        fresh = {rank for hold in awaiting if found.issuperset(hold.awaited) for rank in hold.inside} - found
        found |= fresh
        grown = bool(fresh)
    return frozenset(found - failed)
