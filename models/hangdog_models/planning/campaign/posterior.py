"""What follows from a belief: the probability of each site, the sets of faults that explain the outcomes, and what is
open.

The weight of a set is beside^(faults - 1) * product of its priors * likelihood of the outcomes; without a fault, the
prior of none. A launch passes with (1 - f) * product of (1 - s) over the faults it touches. So a pass multiplies each
fault by itself. Only a failure, 1 minus that, couples faults (the noisy-or of diagnosis networks). Faults that no
failed launch touches are independent, and are summed in closed form however many there are.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hangdog_models.planning.campaign.belief import Belief
from hangdog_models.planning.campaign.fault_sites import FaultSites, Numbers, locate, numbers
from hangdog_models.planning.campaign.hypotheses import Atoms, Floats, Sets, weigh
from hangdog_models.planning.campaign.launch import LaunchResult

#: Sets of faults less probable than this are ignored when the next launches are chosen.
FAINT = 1e-7
#: Links that passed are tracked one by one up to so many in all launches, some tenths of a second. Beyond, passes count
#: for machines and leafs only, and a link elsewhere stays as probable as it was.
PAIRS = 1_000_000


@dataclass(frozen=True)
class Posterior:
    """The probability of every site and set of faults.

    - `place[number]`: the probability that a site is faulty; `none`: that nothing is.
    - `rows`: the sets of faults as atoms (site * modes + mode), padded with -1, with the empty set.
    - `mass`: the probability of each set.
    - `joint`: the first so many sets are those that failed launches affect.
    - `alone`: the probability that no other site is faulty, given such a set.
    - `seen`: links, as low * machines + high, with a site of their own or in a launch that passed; `rest` counts the
      others.
    """

    places: FaultSites
    modes: int
    place: Floats
    none: float
    rows: Numbers
    mass: Floats
    alone: float
    joint: int
    seen: Numbers
    rest: int

    def covered(self, named: frozenset[int]) -> float:
        """The probability that every fault is at one of the named sites; with no name, that there is none."""
        sets = np.where(self.rows[: self.joint] < 0, -1, self.rows[: self.joint] // self.modes)
        inside = np.isin(sets, [-1, *named]).all(axis=1)
        return self.none + self.alone * float(self.mass[: self.joint][inside].sum())

    @cached_property
    def blame(self) -> Floats:
        """How much of the outcomes each site accounts for: a set shares its probability equally among its members."""
        found = np.zeros(self.places.count)
        share = self.mass / np.maximum(1, (self.rows >= 0).sum(axis=1))
        for column in self.rows.T:
            held = column >= 0
            found += np.bincount(column[held] // self.modes, weights=share[held], minlength=self.places.count)
        return np.asarray(found / self.mass.sum())

    @cached_property
    def uncertainty(self) -> float:
        """The entropy of the sets of faults, in bits: no round can gain more."""
        mass = self.mass[self.mass > 0] / self.mass.sum()
        return float(-(mass * np.log2(mass)).sum())

    @cached_property
    def bits(self) -> float:
        """The entropy of the blame, in bits."""
        mass = np.append(self.blame, max(0.0, 1 - float(self.blame.sum())))
        mass = mass[mass > 0]
        return float(-(mass * np.log2(mass)).sum())


def infer(belief: Belief) -> Posterior:
    """The posterior of a belief; equal for equal evidence, in whatever order it came."""
    places = locate(belief)
    weight, seen, rest = _weights(belief, places)
    failed = [one.launch for one in belief.evidence if one.result is LaunchResult.FAIL]
    survive = np.ones((*weight.shape, len(failed)))
    for at, launch in enumerate(failed):
        touched = places.touched(numbers(belief, launch), launch.diagnostic.network)
        survive[touched, :, at] = [1 - launch.diagnostic.shows(mode, launch.repetitions) for mode in belief.modes]
    joint = np.asarray((survive < 1).any(axis=(1, 2)))
    alarms = np.array([launch.diagnostic.alarm for launch in failed])
    suspected = 1 - belief.none
    beside = 2 * belief.further / suspected if suspected else 0.0
    atoms = np.flatnonzero((joint[:, None] & (weight > 0)).ravel())
    sets = weigh(
        Atoms(weight.ravel()[atoms], atoms // len(belief.modes), survive.reshape(weight.size, len(failed))[atoms]),
        alarms,
        beside,
    )
    rows = np.where(sets.rows < 0, -1, atoms[sets.rows]) if len(atoms) else sets.rows
    return _summed(belief, places, weight, joint, Sets(rows, sets.logs), beside, seen, rest)


def _weights(belief: Belief, places: FaultSites) -> tuple[Floats, Numbers, int]:
    """The prior of each site and mode, times the probability of the passes given it.

    Also the links seen, and the number of the others.
    """
    shares = np.array([mode.share for mode in belief.modes])
    count = len(places.names)
    pairs = max(1, count * (count - 1) // 2)
    prior = np.zeros(places.count)
    prior[:count] = list(belief.machines.values())
    prior[count : places.first_link] = belief.leaf / max(1, len(places.leafs))
    prior[places.first_link : places.elsewhere] = belief.link / pairs
    weight: Floats = prior[:, None] * shares
    passed: list[tuple[Numbers, Floats]] = []
    for outcome in belief.evidence:
        if outcome.result is LaunchResult.PASS:
            launch = outcome.launch
            group = numbers(belief, launch)
            survive = np.array([1 - launch.diagnostic.shows(mode, launch.repetitions) for mode in belief.modes])
            weight[places.touched(group, launch.diagnostic.network)] *= survive
            if launch.diagnostic.network and belief.link:
                passed.append((group, survive))
    left, seen = _elsewhere(places, passed, np.full(len(shares), float(pairs)))
    weight[places.elsewhere] = belief.link / pairs * shares * left
    return weight, seen, pairs - len(seen)


def _elsewhere(places: FaultSites, passed: list[tuple[Numbers, Floats]], left: Floats) -> tuple[Floats, Numbers]:
    """The links without a site of their own, counted by mode and weighted by survival of the passes; and those seen."""
    count = len(places.names)
    own = places.links[:, 0] * count + places.links[:, 1]
    left = left - len(own)
    inside = [np.triu_indices(len(group), 1) for group, _ in passed]
    codes = [group[low] * count + group[high] for (group, _), (low, high) in zip(passed, inside, strict=True)]
    if not codes or sum(map(len, codes)) > PAIRS:
        return left, own
    reported, which = np.unique(np.concatenate(codes), return_inverse=True)
    other = ~np.isin(reported, own)
    logs = np.concatenate(
        [np.tile(np.log(survive), (len(code), 1)) for code, (_, survive) in zip(codes, passed, strict=True)]
    )
    for mode in range(len(left)):
        survived = np.exp(np.bincount(which, weights=logs[:, mode], minlength=len(reported)))
        left[mode] += float((survived[other] - 1).sum())
    return np.maximum(left, 0), np.union1d(reported, own)


def _summed(
    belief: Belief,
    places: FaultSites,
    weight: Floats,
    joint: NDArray[np.bool_],
    sets: Sets,
    beside: float,
    seen: Numbers,
    rest: int,
) -> Posterior:
    """Adds the independent faults to the sets, and normalises all weights to probabilities.

    With A the weight of the sets and v those of the independent sites, the sum is A * Z + none + (Z - 1) / beside.
    There Z is the product of (1 + beside * v).
    """
    free = np.where(joint, 0.0, weight.sum(axis=1))
    log_z = float(np.log1p(beside * free).sum())
    others = float(np.expm1(log_z)) / beside if beside else float(free.sum())
    top = max(0.0, float(sets.logs.max(initial=0.0)))
    explained = np.exp(sets.logs - top)
    unit = np.exp(-top)  # the weight of a false alarm behind every failure, on the same scale
    z = np.exp(log_z)
    total = float(explained.sum()) * z + (belief.none + others) * unit
    mass = explained * z / total
    place = (beside * float(explained.sum()) + unit) * z / total * free / (1 + beside * free)
    modes = weight.shape[1]
    for column in sets.rows.T:
        held = column >= 0
        place += np.bincount(column[held] // modes, weights=mass[held], minlength=places.count)
    singles = unit * z / total * weight / (1 + beside * free)[:, None] * ~joint[:, None]
    lone = np.flatnonzero(singles.ravel() > FAINT)
    kept = np.flatnonzero(mass > FAINT)
    width = max(1, sets.rows.shape[1])
    rows = np.full((len(kept) + len(lone) + 1, width), -1, dtype=np.int64)
    rows[: len(kept)] = sets.rows[kept]
    rows[len(kept) : -1, 0] = lone
    none = belief.none * unit / total
    return Posterior(
        places=places,
        modes=modes,
        place=np.minimum(place, 1.0),
        none=float(none),
        rows=rows,
        mass=np.concatenate([mass[kept], singles.ravel()[lone], [none]]),
        alone=1 / float(z),
        joint=len(kept),
        seen=seen,
        rest=rest,
    )
