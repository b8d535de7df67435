"""Ranks asleep in the kernel where writers sleep for seconds on a sound disk: told apart by whether they were seen to stay."""

from collections.abc import Sequence
from dataclasses import replace

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.verdict import Activity


def tell_passing(last: Look, looks: Sequence[Look], motion: Motion) -> tuple[Look, Motion]:
    """The last look, in which a writer that was not seen to stay in its sleep is `passing`, and the motion without its standing still.

    It stays if it slept in one function of the kernel in two looks or more, and used no processor between any of them; or in
    one look, if a long standstill was stated.
    """
    known: dict[int, RankState] = {}
    found = dict(last)
    left = set()
    for rank, state in last.items():
        if state.writing and state.activity is Activity.STORAGE:
            slept = {look[rank].writing for look in looks if rank in look} - {""}
            if rank in motion.still and (rank in motion.working_before or len(slept) > 1):
                left.add(rank)
            if rank not in motion.still or rank in left:
                found[rank] = known.setdefault(id(state), replace(state, passing=True))
    return found, replace(motion, still=motion.still - left, travelling=motion.travelling | left) if left else motion
