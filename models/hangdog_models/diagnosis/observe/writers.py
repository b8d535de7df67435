"""Ranks asleep in the kernel where writers sleep for seconds on a sound disk: which of them stayed there."""

from collections.abc import Sequence
from dataclasses import replace

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.verdict import Activity


def tell_passing(last: Look, looks: Sequence[Look], motion: Motion) -> tuple[Look, Motion]:
    """The last round with its writers marked, and the motion corrected for them.

    A writer that was not seen to stay asleep is marked `passing`, and is no longer `still`. It stayed if it slept in
    one kernel function in two or more rounds and used no CPU between them. One round is enough if a long stall was
    stated.
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
