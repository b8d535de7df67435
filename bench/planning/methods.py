"""Ways to find the faulty machine: the planner, and beside it plain bisection, DLRover's pairs and ByteRobust's phases."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from hangdog_models.planning.campaign.belief import Belief, update
from hangdog_models.planning.campaign.fault import Where
from hangdog_models.planning.campaign.launch import CampaignRound, Diagnostic, LaunchBudget
from hangdog_models.planning.campaign.replay import Groups, crossing, phases
from hangdog_models.planning.campaign.round_planner import plan
from planning.cluster import Cluster


@dataclass(frozen=True)
class Answer:
    """Machines a method would evict, and links or leafs it names instead, by their machines; its slowest step in seconds."""

    evict: frozenset[str]
    tell: frozenset[frozenset[str]] = frozenset()
    step_s: float = 0.0


Method = Callable[[Cluster, Sequence[str]], Answer]


def planner(
    belief: Belief, diagnostics: Sequence[Diagnostic], budget: LaunchBudget, clock: Callable[[], float]
) -> Method:
    """Plans, launches and learns until the planner stops."""

    def campaign(cluster: Cluster, machines: Sequence[str]) -> Answer:
        known, left, longest = belief, budget, 0.0
        while True:
            began = clock()
            step = plan(known, diagnostics, left)
            longest = max(longest, clock() - began)
            if not isinstance(step, CampaignRound):
                told = (belief.leafs[one.names[0]] if one.where is Where.LEAF else one.names for one in step.tell)
                return Answer(frozenset(step.evict), frozenset(map(frozenset, told)), longest)
            known, left = update(known, cluster.run(list(step.launches))), left.after(step)

    return campaign


def bisection(diagnostic: Diagnostic, repetitions: int = 1) -> Method:
    """All machines; if they fail, one half; then the half that failed, or the other one, down to one machine."""

    def halve(cluster: Cluster, machines: Sequence[str]) -> Answer:
        left = list(machines)
        if not cluster.fails(diagnostic, [left], repetitions)[0]:
            return Answer(frozenset())
        while len(left) > 1:
            half = left[: len(left) // 2]
            left = half if cluster.fails(diagnostic, [half], repetitions)[0] else left[len(half) :]
        return Answer(frozenset(left))

    return halve


def pairing(diagnostic: Diagnostic, repetitions: int = 1) -> Method:
    """DLRover's node check: neighbours in pairs, then fastest with slowest; faulty is who failed in both rounds.

    A machine whose pair failed counts as slow as the time-out; the others' times are drawn. The odd machine joins the last pair.
    """

    def pair(cluster: Cluster, machines: Sequence[str]) -> Answer:
        passed: set[str] = set()
        order = list(machines)
        for second in (False, True):
            ends = [(at, len(order) - 1 - at) for at in range(len(order) // 2)] if second else None
            pairs = [
                [order[low], order[high]] for low, high in ends or ((at, at + 1) for at in range(0, len(order) - 1, 2))
            ]
            if len(order) % 2:
                pairs[-1].append(order[len(order) // 2] if second else order[-1])
            failed = cluster.fails(diagnostic, pairs, repetitions)
            time = {
                name: 2.0 if bad else cluster.rng.random()
                for names, bad in zip(pairs, failed, strict=True)
                for name in names
            }
            passed |= {name for names, bad in zip(pairs, failed, strict=True) for name in names if not bad}
            order = sorted(machines, key=lambda name: time[name])
        return Answer(frozenset(machines) - passed)

    return pair


def replay(diagnostic: Diagnostic, size: int, third: bool, repetitions: int = 1) -> Method:
    """ByteRobust's dual-phase replay, with or without a third, diagonal phase: who was in a failed group of every phase."""

    def replayed(cluster: Cluster, machines: Sequence[str]) -> Answer:
        design = _phases(size, len(machines) // size, third)
        failed = []
        for groups in design:
            fails = cluster.fails(diagnostic, [[machines[x] for x in group] for group in groups], repetitions)
            failed.append([number for number, bad in enumerate(fails) if bad])
        return Answer(frozenset(machines[x] for x in crossing(design, failed)))

    return replayed


@cache
def _phases(size: int, count: int, third: bool) -> tuple[Groups, ...]:
    return phases(size, count, third)
