"""Numbers every site where a fault may be, and says which of them a launch touches."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hangdog_models.planning.campaign.belief import Belief, members
from hangdog_models.planning.campaign.fault import FaultSite, Where
from hangdog_models.planning.campaign.launch import Launch, LaunchResult

Numbers = NDArray[np.int64]

#: The links inside a failed group become sites of their own up to this size. A larger group has thousands, of which
#: none would stand out; smaller groups that fail later bring them in.
LINKED = 48
#: At most so many links are sites of their own, those of the smallest failed groups first. It bounds time only.
LINKS = 4096


@dataclass(frozen=True)
class FaultSites:
    """Numbers of sites: first the machines, then the leafs, then some links, last all other links together."""

    names: tuple[str, ...]
    leafs: tuple[str, ...]
    under: NDArray[np.bool_]
    links: Numbers

    @property
    def count(self) -> int:
        return len(self.names) + len(self.leafs) + len(self.links) + 1

    @property
    def elsewhere(self) -> int:
        """The number of all links that are no sites of their own; no launch is known to touch them."""
        return self.count - 1

    @cached_property
    def first_link(self) -> int:
        return len(self.names) + len(self.leafs)

    def place(self, number: int) -> FaultSite:
        """The site of this number. ValueError for `elsewhere`, which is many."""
        if number < len(self.names):
            return FaultSite(Where.MACHINE, (self.names[number],))
        if number < self.first_link:
            return FaultSite(Where.LEAF, (self.leafs[number - len(self.names)],))
        if number < self.elsewhere:
            low, high = self.links[number - self.first_link]
            return FaultSite(Where.LINK, (self.names[low], self.names[high]))
        raise ValueError("this stands for all links that nobody suspects by name")

    def touched(self, group: Numbers, network: bool) -> Numbers:
        """The sites a launch on these machines would show: leafs and links only if the machines communicate."""
        if not network or len(group) < 2:
            return group
        inside = np.zeros(len(self.names), dtype=bool)
        inside[group] = True
        leafs = np.flatnonzero(self.under[:, group].any(axis=1)) + len(self.names)
        links = np.flatnonzero(inside[self.links].all(axis=1)) + self.first_link
        return np.concatenate([group, leafs, links])


def locate(belief: Belief) -> FaultSites:
    """All machines and leafs of a belief, and the links that failed launches make worth a site."""
    number = belief.number
    under = np.zeros((len(belief.leafs), len(number)), dtype=bool)
    for at, names in enumerate(belief.leafs.values()):
        under[at, [number[name] for name in names]] = True
    return FaultSites(tuple(belief.machines), tuple(belief.leafs), under, _links(belief))


def numbers(belief: Belief, launch: Launch) -> Numbers:
    return np.array(members(belief, launch), dtype=np.int64)


def _links(belief: Belief) -> Numbers:
    failed = [
        one.launch for one in belief.evidence if one.result is LaunchResult.FAIL and one.launch.diagnostic.network
    ]
    found: dict[tuple[int, int], None] = {}
    if belief.link:
        for group in sorted((members(belief, launch) for launch in failed), key=lambda group: (len(group), group)):
            if len(group) > LINKED or len(found) + len(group) * (len(group) - 1) // 2 > LINKS:
                break
            found |= dict.fromkeys((low, high) for at, low in enumerate(group) for high in group[at + 1 :])
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)
