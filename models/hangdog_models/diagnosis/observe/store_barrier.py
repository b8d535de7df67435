"""Ranks that create a process group and have not come to its barrier at the store, where the others wait for them."""

from dataclasses import replace

from hangdog_models.diagnosis.observe.activity import RankState, sites
from hangdog_models.diagnosis.observe.call_lines import CROWD_LEAST
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait

#: The last call of `init_process_group` and `new_group`: it ends once every member has counted itself at the store.
_BARRIER = "_store_based_barrier"


def tell_late(look: Look) -> Look:
    """The round, with late ranks as ranks that wait for none.

    A crowd at the barrier, more than twice as many as elsewhere, shows that the rest is late. All of them are in the start of a process group, which is a wait for the others as long as nobody is known to be past
    what the late ones are in.
    """
    came = 0
    late: list[tuple[RankState, list[Rank]]] = []
    for state, ranks in sites(look):
        if state.wait is Wait.STORE:
            if any(frame.function == _BARRIER for frame in state.frames):
                came += len(ranks)
            else:
                late.append((state, ranks))
    count = sum(len(ranks) for _, ranks in late)
    if not late or came < CROWD_LEAST or came <= 2 * count:
        return look
    apart: dict[Rank, RankState] = {}
    for state, ranks in late:
        apart.update(dict.fromkeys(ranks, replace(state, wait=Wait.NONE)))
    return {**look, **apart}
