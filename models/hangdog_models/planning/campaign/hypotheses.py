"""Weighs which sets of faults explain the failed launches: all sets if they are few, else the likeliest.

Only faults that a failed launch touches are weighed together here. All others are independent and need no sets. An
*atom* is a site with a failure mode.

Sets grow one atom at a time from the likeliest so far, which is exact as long as the limits below do not bind. An atom
multiplies a set's weight by at most what it is worth alone: a failure that is half explained already gains less. So
atoms worth little alone may be left out of larger sets.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hangdog_models.planning.campaign.fault_sites import Numbers

Floats = NDArray[np.float64]

#: The most faults at once that are distinguished. More at the same time are an outage, which no group test resolves.
DEEPEST = 6
#: Sets weighed at each depth: a few hundredths of a second.
WEIGHED = 100_000
#: Sets kept at each depth: the rest together weigh less than the model's own error.
KEPT = 6_000
#: Atoms that are combined with others: all pairs of so many are weighed, and a set of DEEPEST has a number below 2^63.
COMBINED = 300
#: An atom that can add at most this share to the weight of any set is left out of larger sets.
NEGLIGIBLE = 1e-6
#: Likelihood ratios multiplied before a logarithm is taken: 16 of at most 1e6 are far below the largest float.
CHUNK = 16


@dataclass(frozen=True, slots=True)
class Atoms:
    """Faults that failed launches touch: prior weight after the passes, site, and survival of each failed launch."""

    weight: Floats
    place: Numbers
    survive: Floats


@dataclass(frozen=True, slots=True)
class Sets:
    """Sets of atoms, as rows of atom numbers padded with -1, and the logarithms of their weights."""

    rows: Numbers
    logs: Floats


def weigh(atoms: Atoms, alarms: Floats, beside: float) -> Sets:
    """The sets of one or more faults, relative to no fault; each further fault costs `beside`.

    `alarms`: the false-alarm rate of each failed launch, the columns of `atoms.survive`.
    """
    if not len(atoms.weight):
        return Sets(np.zeros((0, 1), dtype=np.int64), np.zeros(0))
    with np.errstate(divide="ignore"):
        prior = np.log(atoms.weight)
    alone = prior + _ratios(np.ones((1, len(alarms))), atoms.survive, alarms)[0]
    layers = [(np.arange(len(prior)).reshape(-1, 1), alone)]
    joined = _worth_joining(alone, beside)
    kin = atoms.place[joined][:, None] == atoms.place[joined][None, :]
    rows, logs, survive = np.arange(len(joined)).reshape(-1, 1), alone[joined], atoms.survive[joined]
    while len(rows) and rows.shape[1] < DEEPEST:
        best = _largest(logs, max(1, WEIGHED // len(joined)))
        rows, survive = rows[best], survive[best]
        depth = rows.shape[1]
        grown = _ratios(survive, atoms.survive[joined], alarms)
        grown += prior[joined[rows]].sum(axis=1)[:, None] + prior[joined] + depth * np.log(beside)
        for column in rows.T:
            grown[kin[column]] = -np.inf  # a site fails in one mode only
        chosen = _largest(grown.ravel(), KEPT * (depth + 1))  # a set is reached from each of its members
        chosen = chosen[grown.ravel()[chosen] > -np.inf]
        parents, added = np.divmod(chosen, len(joined))
        rows = np.sort(np.column_stack([rows[parents], added]), axis=1)
        _, first = np.unique(rows @ len(joined) ** np.arange(depth + 1), return_index=True)
        rows, logs = rows[first], grown.ravel()[chosen[first]]
        survive = survive[parents[first]] * atoms.survive[joined[added[first]]]
        layers.append((joined[rows], logs))
        if logs.max(initial=-np.inf) < max(float(layer.max()) for _, layer in layers[:-1]) + np.log(NEGLIGIBLE):
            break
    deepest = layers[-1][0].shape[1]
    padded = [np.pad(rows, ((0, 0), (0, deepest - rows.shape[1])), constant_values=-1) for rows, _ in layers]
    return Sets(np.concatenate(padded), np.concatenate([logs for _, logs in layers]))


def _worth_joining(alone: Floats, beside: float) -> Numbers:
    if not beside:
        return np.zeros(0, dtype=np.int64)
    best = _largest(alone, COMBINED)
    return np.sort(best[alone[best] + np.log(beside) > np.log(NEGLIGIBLE)])


def _ratios(parents: Floats, added: Floats, alarms: Floats) -> Floats:
    """Log likelihood of the failures for each parent with each atom added, relative to false alarms only."""
    logs = np.zeros((len(parents), len(added)))
    product, one = np.empty_like(logs), np.empty_like(logs)  # reused: fresh pages cost more than the sums
    for start in range(0, len(alarms), CHUNK):
        product.fill(1.0)
        for at in range(start, min(start + CHUNK, len(alarms))):
            np.multiply(parents[:, at, None], added[None, :, at], out=one)
            one *= 1 - 1 / alarms[at]
            one += 1 / alarms[at]
            product *= one
        logs += np.log(product, out=one)
    return logs


def _largest(values: Floats, count: int) -> Numbers:
    """The indices of the `count` largest values; among equal ones always the same."""
    if len(values) <= count:
        return np.arange(len(values))
    return np.sort(np.argpartition(-values, count)[:count])
