"""Plans the next round of a campaign, or says why it ends and what was found."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log2

import numpy as np

from hangdog_models.counts import counted
from hangdog_models.planning.campaign.belief import Belief
from hangdog_models.planning.campaign.conviction import convicted, sure
from hangdog_models.planning.campaign.fault import FaultSite, Where, repetitions
from hangdog_models.planning.campaign.fault_sites import Numbers
from hangdog_models.planning.campaign.grouping import Deck, alone, cross, deck, scatter, spread
from hangdog_models.planning.campaign.information_gain import GroupReach, gained, reach
from hangdog_models.planning.campaign.launch import CampaignRound, Diagnostic, Launch, LaunchBudget
from hangdog_models.planning.campaign.posterior import Posterior, infer
from hangdog_models.planning.campaign.thresholds import USUAL, Thresholds

#: Launches kept back to confirm a suspect: two failures convict, and one launch may be wasted.
CONFIRMING = 3
#: The share of its capacity that a launch with usual misses and false alarms delivers: 0.8 of 1 bit.
DELIVERED = 0.8
#: Rounds with a score this close to the best are as good, and the one with the fewest launches is taken. If it were
#: wider, the last group of 64 would be left out for it, with the second fault in it.
ALIKE = 0.001


class Because(StrEnum):
    """Why a campaign ends."""

    SETTLED = "settled"
    SPENT = "budget spent"
    SILENT = "nothing left to tell"
    SHARED = "every group failed: what all machines share is the likelier cause"


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a campaign.

    - `evict`: the convicted machines.
    - `tell`: the convicted links and leafs. They evict no machine: they are reported to the network team.
    - `covered`: the probability that there are no other faults; without a conviction, no fault at all.
    - `ranked`: what else is probable, most first.
    - `instead`: the fewest machines whose eviction now would reach the target, if there are such.
    - `untested`: the machines that never answered a diagnostic.
    """

    reason: Because
    evict: tuple[str, ...]
    tell: tuple[FaultSite, ...]
    covered: float
    none: float
    ranked: tuple[tuple[FaultSite, float], ...]
    instead: tuple[str, ...]
    untested: tuple[str, ...]


#: Sites in a report: a longer list is not read.
RANKED = 16


def plan(
    belief: Belief, diagnostics: Sequence[Diagnostic], budget: LaunchBudget, thresholds: Thresholds = USUAL
) -> CampaignRound | Stop:
    """The next launches to run at once, or the end of the campaign.

    Of all rounds that the budget allows, it plans the one with most bits for its time and price. As many launches run
    at once as the launches left allow for the whole search. Deterministic, whatever the order of `diagnostics`; well
    under a second for 1,024 machines.
    """
    posterior = infer(belief)
    named = convicted(belief, posterior, thresholds)
    if posterior.covered(named) >= thresholds.target:
        return _stop(belief, posterior, named, diagnostics, Because.SETTLED, thresholds)
    kinds = sorted(diagnostics, key=lambda one: one.name)
    offers = [offer for one in kinds for offer in _offers(belief, posterior, one, budget, named, thresholds)]
    if not offers:
        return _stop(belief, posterior, named, diagnostics, Because.SPENT, thresholds)
    best = max(score for score, _ in offers)
    alike = [offer for offer in offers if offer[0] >= best * (1 - ALIKE)]
    chosen = min(alike, key=lambda offer: (len(offer[1].launches), -offer[0]))[1]
    if chosen.bits >= thresholds.worth:
        return chosen
    if again := [offer for one in kinds for offer in _again(belief, posterior, one, budget, named, thresholds)]:
        return max(again, key=lambda offer: offer[0])[1]
    return _stop(belief, posterior, named, diagnostics, Because.SILENT, thresholds)


def _offers(
    belief: Belief,
    posterior: Posterior,
    diagnostic: Diagnostic,
    budget: LaunchBudget,
    named: frozenset[int],
    thresholds: Thresholds,
) -> Iterator[tuple[float, CampaignRound]]:
    """Rounds of one diagnostic that the budget allows, with their bits a second."""
    dealt = deck(belief, posterior, diagnostic, named)
    count = min(_at_once(posterior.bits, budget), dealt.groups)
    runs = list(_repetitions(belief, diagnostic, budget.seconds, thresholds.seen))
    if not runs or count < 1 or budget.rounds < 1:
        return
    somewhere = diagnostic.network and float(posterior.place[posterior.places.elsewhere]) > thresholds.links_suspected
    formed = list(_formed(dealt, count))
    if somewhere and (groups := scatter(posterior, dealt, count)):
        formed.append(groups)
    for groups in formed:
        reached = reach(posterior, diagnostic.network, groups, somewhere)
        yield from (_offer(belief, reached, dealt, groups, times) for times in runs)
    links = float(posterior.place[posterior.places.first_link : posterior.places.elsewhere].sum())
    if diagnostic.network and links > thresholds.links_suspected:
        for times in runs:
            groups = cross(belief, posterior, dealt, times)
            if 0 < len(groups) <= count:
                yield _offer(belief, reach(posterior, True, groups, somewhere), dealt, groups, times)


def _again(
    belief: Belief,
    posterior: Posterior,
    diagnostic: Diagnostic,
    budget: LaunchBudget,
    named: frozenset[int],
    thresholds: Thresholds,
) -> Iterator[tuple[float, CampaignRound]]:
    """Rounds that add little information but would convict: sites that are sure, and have not failed often enough."""
    unproven = [at for at in sure(posterior, thresholds) if at not in named]
    dealt = deck(belief, posterior, diagnostic, named)
    groups = alone(dealt, posterior.places, unproven, min(budget.parallel, budget.launches, dealt.groups))
    if groups and budget.rounds >= 1:
        reached = reach(posterior, diagnostic.network, groups)
        for times in _repetitions(belief, diagnostic, budget.seconds, thresholds.seen):
            yield _offer(belief, reached, dealt, groups, times)


def _formed(dealt: Deck, count: int) -> Iterator[list[Numbers]]:
    """Groups to choose from: the most launches allowed, half of them, and so on down to one."""
    seen = set()
    while count:
        for share in (1.0, count / (count + 1)):  # of everything; or leave out as much as is in each group
            groups = spread(dealt, count, share)
            key = tuple(map(tuple, groups))
            if groups and key not in seen:
                seen.add(key)
                yield groups
        count //= 2


def _offer(
    belief: Belief, reached: GroupReach, dealt: Deck, groups: Sequence[Numbers], times: int
) -> tuple[float, CampaignRound]:
    diagnostic, posterior = dealt.diagnostic, reached.posterior
    bits = gained(reached, belief.modes, diagnostic, times)
    cost = diagnostic.takes_s(times) + diagnostic.price * len(groups)
    names = posterior.places.names
    launches = tuple(Launch(diagnostic, tuple(names[at] for at in group), times) for group in groups)
    tells = f"expected to tell {bits:.2f} of {posterior.uncertainty:.2f} bits"
    because = f"{len(groups)} x {diagnostic.name}, {counted(times, 'repetition')}: {tells}"
    return bits / cost, CampaignRound(launches, bits, because)


def _at_once(bits: float, budget: LaunchBudget) -> int:
    """The most launches at once for which the launches left are enough: k groups gain at most log2(k + 1) bits."""
    left = min(budget.launches, budget.parallel * budget.rounds)
    most = min(budget.parallel, budget.launches)

    def needed(count: int) -> float:
        return count * bits / (DELIVERED * log2(count + 1)) + CONFIRMING

    low, high = 1, max(1, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if needed(middle) <= left else (low, middle - 1)
    return min(low, most)


def _repetitions(belief: Belief, diagnostic: Diagnostic, seconds: float, seen: float) -> Iterator[int]:
    """1, 2, 4, ... up to those that show the rarest mode, as far as time allows."""
    rarest = min((mode.manifestation for mode in belief.modes if mode.name not in diagnostic.blind), default=None)
    if rarest is None:
        return
    affordable = (seconds - diagnostic.setup_s) / diagnostic.seconds
    most = repetitions(rarest, seen)
    times = 1
    while times <= affordable:
        yield times
        if times >= most:
            return
        times = min(2 * times, most)


def _stop(
    belief: Belief,
    posterior: Posterior,
    named: frozenset[int],
    diagnostics: Sequence[Diagnostic],
    because: Because,
    thresholds: Thresholds,
) -> Stop:
    places = posterior.places
    order = [int(at) for at in np.argsort(-posterior.place, kind="stable") if at != places.elsewhere]
    ranked = [(places.place(at), float(posterior.place[at])) for at in order[:RANKED]]
    found = [places.place(at) for at in sorted(named)]
    given_up = frozenset().union(*(deck(belief, posterior, one).given_up for one in diagnostics))
    return Stop(
        reason=because,
        evict=tuple(place.names[0] for place in found if place.where is Where.MACHINE),
        tell=tuple(place for place in found if place.where is not Where.MACHINE),
        covered=posterior.covered(named),
        none=posterior.none,
        ranked=tuple(ranked),
        instead=_instead(
            posterior, [at for at in order if at < len(places.names)][: thresholds.instead], thresholds.target
        ),
        untested=tuple(places.names[at] for at in sorted(given_up)),
    )


def _instead(posterior: Posterior, order: Sequence[int], target: float) -> tuple[str, ...]:
    for count in range(1, len(order) + 1):
        if posterior.covered(frozenset(order[:count])) >= target:
            return tuple(posterior.places.names[at] for at in sorted(order[:count]))
    return ()
