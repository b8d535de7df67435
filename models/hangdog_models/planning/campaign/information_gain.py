"""The expected information of a round: what passes and failures of its groups say about where the fault is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hangdog_models.planning.campaign.fault import FailureMode
from hangdog_models.planning.campaign.fault_sites import LINKED, Numbers
from hangdog_models.planning.campaign.hypotheses import Floats
from hangdog_models.planning.campaign.launch import Diagnostic
from hangdog_models.planning.campaign.posterior import Posterior


@dataclass(frozen=True, slots=True)
class GroupReach:
    """Which sets of faults the groups of a round touch: computed once for all repetitions.

    `met` numbers each meeting of a set with a group as set * groups + group. Each fault of a set that a group touches
    is an entry:

    - `which`: the meeting.
    - `mode`: the fault's mode.
    - `part`: the share of the site that is in the group; below 1 for links elsewhere.
    """

    posterior: Posterior
    groups: int
    met: Numbers
    which: Numbers
    mode: Numbers
    part: Floats


def reach(posterior: Posterior, network: bool, groups: Sequence[Numbers], links: bool = False) -> GroupReach:
    """What disjoint groups touch. With `links`, links without a site of their own count, too."""
    places = posterior.places
    touched = [places.touched(group, network) for group in groups]
    parts = [np.ones(len(group)) for group in touched]
    if links and network:
        for at, group in enumerate(groups):
            touched[at] = np.append(touched[at], places.elsewhere)
            parts[at] = np.append(parts[at], len(unseen(posterior, group)) / max(1, posterior.rest))
    place = np.concatenate(touched)
    group_of, part = np.repeat(np.arange(len(groups)), [len(group) for group in touched]), np.concatenate(parts)
    order = np.argsort(place, kind="stable")
    place, group_of, part = place[order], group_of[order], part[order]
    start = np.searchsorted(place, np.arange(places.count + 1))
    keys, modes, shares = [], [], []
    for column in posterior.rows.T:
        held = np.flatnonzero(column >= 0)
        first, last = start[column[held] // posterior.modes], start[column[held] // posterior.modes + 1]
        rows = np.repeat(np.arange(len(held)), last - first)
        at = np.arange(len(rows)) - np.repeat(np.cumsum(last - first) - (last - first), last - first) + first[rows]
        keys.append(held[rows] * len(groups) + group_of[at])
        modes.append(column[held][rows] % posterior.modes)
        shares.append(part[at])
    met, which = np.unique(np.concatenate(keys), return_inverse=True)
    return GroupReach(posterior, len(groups), met, which, np.concatenate(modes), np.concatenate(shares))


def gained(reached: GroupReach, modes: Sequence[FailureMode], diagnostic: Diagnostic, repetitions: int) -> float:
    """Expected bits of a diagnostic launched on these groups, each launch counted by itself.

    Launches of one round overlap in information, so the sum is an upper bound. The posterior's uncertainty is another.
    """
    shown = np.array([diagnostic.shows(mode, repetitions) for mode in modes])
    sound = 1 - diagnostic.alarm
    each = np.log1p(-shown)[reached.mode]
    partly = np.flatnonzero(reached.part < 1)
    each[partly] = np.log1p(-shown[reached.mode[partly]] * reached.part[partly])
    logs = np.bincount(reached.which, weights=each, minlength=len(reached.met))
    quiet = sound * np.exp(logs)
    mass = reached.posterior.mass / reached.posterior.mass.sum()
    held = mass[reached.met // reached.groups]
    changed = np.bincount(reached.met % reached.groups, weights=held * (quiet - sound), minlength=reached.groups)
    passing: Floats = np.asarray(sound + changed, dtype=np.float64)
    noise = float(_entropy(np.array([sound]))[0])
    known = reached.groups * noise + float(held @ (_entropy(quiet) - noise))
    return max(0.0, min(float(_entropy(passing).sum()) - known, reached.posterior.uncertainty))


def unseen(posterior: Posterior, group: Numbers) -> Numbers:
    """The links inside a group without a site of their own that never passed; empty if a failure would add too many."""
    if len(group) > LINKED:
        return np.zeros(0, dtype=np.int64)
    low, high = np.triu_indices(len(group), 1)
    codes = group[low] * len(posterior.places.names) + group[high]
    return codes[~_member(codes, posterior.seen)]


def _member(codes: Numbers, of: Numbers) -> NDArray[np.bool_]:
    if not len(of):
        return np.zeros(len(codes), dtype=bool)
    return np.asarray(of[np.minimum(np.searchsorted(of, codes), len(of) - 1)] == codes)


def _entropy(probability: Floats) -> Floats:
    """Bits of a yes or no with this probability. It is never 0 or 1: no diagnostic is perfect."""
    kept = np.clip(probability, 1e-12, 1 - 1e-12)  # sums of floats may go beyond 0 and 1
    other = 1 - kept
    return np.asarray(-(kept * np.log2(kept) + other * np.log2(other)))
