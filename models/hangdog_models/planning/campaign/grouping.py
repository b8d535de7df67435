"""Forms the disjoint groups of a round: suspects separated from each other, filled up with unsuspected machines.

- `spread` makes all groups equally suspicious. Without suspects it gives neighbours, like the first phase of replay. It
  separates the suspects of a failed group, like the second phase, but only those that are left.
- `cross` combines machines that may fail only together, which any spreading separates.
- `scatter` combines machines that never met, where a faulty link may be anywhere.
- `alone` tests one site again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hangdog_models.planning.campaign.belief import Belief, members
from hangdog_models.planning.campaign.fault_sites import LINKED, FaultSites, Numbers
from hangdog_models.planning.campaign.hypotheses import Floats
from hangdog_models.planning.campaign.information_gain import gained, reach
from hangdog_models.planning.campaign.launch import GIVEN_UP, Diagnostic, LaunchResult
from hangdog_models.planning.campaign.posterior import Posterior

#: A diagnostic is also given up on a machine after so many launches without an answer, whichever others took part.
#: Halving would have singled out one of 1,024 by then, so several are silent.
GIVEN_UP_TOGETHER = 12
#: Machines tried one by one for crossing groups: three tries each, some milliseconds a try.
CROSSED = 24
#: A machine with less than this share of the most suspicious one's blame is not tried: it would only add noise.
FAINTEST = 0.01
#: Links anywhere are searched among so many machines at most: the table of meetings grows squared.
SCATTERED = 4096
#: Decimal digits of suspicion that count: rounding of floats must not decide which machines are neighbours.
GRAIN = 12


@dataclass(frozen=True)
class Deck:
    """The machines of a diagnostic: how suspicious each is, and how often it left a launch without an answer.

    `given_up` never answer this diagnostic, `named` are convicted: neither is launched on again.
    """

    diagnostic: Diagnostic
    mass: Floats
    silent: Numbers
    given_up: frozenset[int]
    named: frozenset[int]

    @property
    def out(self) -> frozenset[int]:
        return self.given_up | self.named

    @property
    def size(self) -> int:
        """The fewest machines of a launch."""
        return -(-self.diagnostic.least // self.diagnostic.multiple) * self.diagnostic.multiple

    @property
    def room(self) -> int:
        """The most machines of a launch."""
        return self.diagnostic.most // self.diagnostic.multiple * self.diagnostic.multiple

    @property
    def groups(self) -> int:
        """The most launches at once."""
        return sum(at not in self.out for at in range(len(self.mass))) // self.size


def deck(belief: Belief, posterior: Posterior, diagnostic: Diagnostic, named: frozenset[int] = frozenset()) -> Deck:
    """The blame of each machine: its own, and for a network diagnostic that of its links. `named` ones are out."""
    places = posterior.places
    mass = posterior.blame[: len(places.names)].copy()
    if diagnostic.network and len(places.links):
        of_links = posterior.blame[places.first_link : places.elsewhere] / 2
        for end in places.links.T:
            mass += np.bincount(end, weights=of_links, minlength=len(mass))
    silent, given_up = _silent(belief, diagnostic)
    return Deck(diagnostic, np.round(mass, GRAIN), silent, given_up, named)


def spread(deck: Deck, count: int, share: float = 1.0) -> list[Numbers]:
    """At most `count` groups with machines of this share of all suspicion, as equally suspicious as possible."""
    order = [at for at in np.lexsort((-deck.mass, deck.silent)) if at not in deck.out]
    middle = np.cumsum(deck.mass[order]) - deck.mass[order] / 2  # more than half inside the share is in
    enough = int((middle < share * deck.mass[order].sum()).sum()) if share < 1 else len(order)
    chosen = order[: max(1, min(enough, count * deck.room))]
    return _filled(deck, _dealt(deck, chosen, min(count, len(chosen))))


def cross(belief: Belief, posterior: Posterior, deck: Deck, repetitions: int) -> list[Numbers]:
    """Up to two groups chosen machine by machine for their information, links included."""
    suspects = [at for at in np.argsort(-deck.mass, kind="stable") if at not in deck.out][:CROSSED]
    groups: list[list[int]] = [[], []]
    reported = 0.0
    for suspect in (at for at in suspects if deck.mass[at] >= FAINTEST * deck.mass[suspects[0]]):
        tried = []
        for at in (0, 1):
            if len(groups[at]) < deck.room:
                new = [[*group, suspect] if at == number else group for number, group in enumerate(groups)]
                arrays = [np.array(group, dtype=np.int64) for group in new if group]
                reached = reach(posterior, deck.diagnostic.network, arrays)
                tried.append((gained(reached, belief.modes, deck.diagnostic, repetitions), -at, new))
        best = max(tried, key=lambda entry: entry[:2], default=None)
        if best is not None and best[0] >= reported:
            reported, _, groups = best
    return _filled(deck, [group for group in groups if group])


def scatter(posterior: Posterior, deck: Deck, count: int) -> list[Numbers]:
    """At most `count` large groups, each grown by the machine that met fewest of the others in a launch that passed."""
    machines = len(deck.mass)
    size = min(deck.room, LINKED, machines) // deck.diagnostic.multiple * deck.diagnostic.multiple
    if size < max(2, deck.size) or machines > SCATTERED:
        return []
    fresh = np.ones((machines, machines), dtype=np.int32)
    low, high = np.divmod(posterior.seen, machines)
    fresh[low, high] = fresh[high, low] = 0
    np.fill_diagonal(fresh, 0)
    free = np.array([at not in deck.out for at in range(machines)])
    groups: list[Numbers] = []
    while len(groups) < count and free.sum() >= size:
        meets = np.where(free, fresh[:, free].sum(axis=1), -1)
        group = [int(meets.argmax())]
        new = np.zeros(machines, dtype=np.int64)
        while len(group) < size:
            free[group[-1]] = False
            new += fresh[group[-1]]
            group.append(int(np.where(free, new * machines + meets, -1).argmax()))
        free[group[-1]] = False
        groups.append(np.array(sorted(group), dtype=np.int64))
    return groups


def alone(deck: Deck, places: FaultSites, suspects: Sequence[int], count: int) -> list[Numbers]:
    """At most `count` groups that test one site again: a machine, both ends of a link, or two machines of a leaf."""
    groups: list[list[int]] = []
    for place in suspects:
        if place < len(deck.mass):
            group = [place]
        elif place >= places.first_link:
            group = [int(end) for end in places.links[place - places.first_link]]
        else:
            group = [int(at) for at in np.flatnonzero(places.under[place - len(deck.mass)]) if at not in deck.out][:2]
        taken = deck.out.union(*groups)
        if group and len(group) <= deck.room and not taken & set(group):
            groups.append(group)
    return _filled(deck, groups[:count])


def _dealt(deck: Deck, chosen: Sequence[int], count: int) -> list[list[int]]:
    """Puts heavy suspects in the lightest group each, then the rest, neighbours together, to balance the weight."""
    share = float(deck.mass[list(chosen)].sum()) / count
    apart = [at for at in chosen if deck.mass[at] > share / 2 or deck.silent[at]]
    groups: list[list[int]] = [[] for _ in range(count)]
    load = [0.0] * count
    for at in apart:
        roomy = [number for number in range(count) if len(groups[number]) < deck.room]
        lightest = min(roomy, key=lambda number: (load[number], len(groups[number]), number))
        groups[lightest].append(at)
        load[lightest] += float(deck.mass[at])
    rest = sorted(set(chosen) - set(apart))
    for full in (False, True):
        for number in sorted(range(count), key=lambda number: (round(load[number], GRAIN), number)):
            while rest and len(groups[number]) < deck.room and (full or load[number] + deck.mass[rest[0]] / 2 < share):
                load[number] += float(deck.mass[rest[0]])
                groups[number].append(rest.pop(0))
    return [group for group in groups if group]


def _filled(deck: Deck, groups: list[list[int]]) -> list[Numbers]:
    """The groups filled up with the least suspected others as needed. Groups that cannot be filled are left out."""
    taken = {at for group in groups for at in group} | deck.out
    spare = [at for at in np.lexsort((deck.mass, deck.silent)) if at not in taken]
    found = []
    for group in groups:
        wanted = max(deck.size, -(-len(group) // deck.diagnostic.multiple) * deck.diagnostic.multiple) - len(group)
        if wanted <= len(spare):
            found.append(np.array(sorted([*group, *spare[:wanted]]), dtype=np.int64))
            spare = spare[wanted:]
    return found


def _silent(belief: Belief, diagnostic: Diagnostic) -> tuple[Numbers, frozenset[int]]:
    """How often each machine was in a launch without an answer, if never in one with an answer; and those given up."""
    mine = [one for one in belief.evidence if one.launch.diagnostic.name == diagnostic.name]
    groups = [(set(members(belief, one.launch)), one.result is LaunchResult.INCONCLUSIVE) for one in mine]
    answered = set().union(*(group for group, lost in groups if not lost))
    left = [group - answered for group, lost in groups if lost]
    silent = np.zeros(len(belief.machines), dtype=np.int64)
    alone = np.zeros(len(belief.machines), dtype=np.int64)
    for group in left:
        for at in group:
            silent[at] += 1
            alone[at] += len(group) == 1
    given_up = np.flatnonzero((alone >= GIVEN_UP) | (silent >= GIVEN_UP_TOGETHER)).tolist()
    return silent, frozenset(given_up) | {belief.number[name] for name in belief.gone}
