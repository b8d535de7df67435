"""Stuck groups: all members joined and the operation does not complete.

A link, a switch or a machine's network is broken, or the code differs in a way that frames do not show.
"""

from collections.abc import Sequence

from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.diagnosis.waits.waits import GroupWait, Waits
from hangdog_models.ranks import format_ranks
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, VerdictReason

GROUP_JOINED = likelihood("group_joined")
GROUP_STILL = likelihood("group_still")
GROUP_BEGUN = likelihood("group_begun")
GROUP_APART = likelihood("group_apart")
GROUP_APART_BY_CODE = likelihood("group_apart_by_code")
OTHER_STORE = likelihood("other_store")
GROUP_BESIDE_ROOT = likelihood("group_beside_root")
LOST_COUNTERS_BY_CODE = likelihood("lost_counters_by_code")
ONE_OF_STUCK_GROUPS = likelihood("one_of_stuck_groups")
COMMON_TO_STUCK_GROUPS = likelihood("common_to_stuck_groups")
NOT_IN_STUCK_GROUP = likelihood("not_in_stuck_group")
#: Up to so many stuck groups, the waits that each explains are computed for it alone. The cost is their number times
#: the ranks.
ASKED_ALONE = 32
#: The dimension of what several groups involve that have no machine and no switch in common.
SEVERAL = "several"


def explain(scene: Scene) -> list[Hypothesis]:
    """A hypothesis for each stuck group, and one for what several have in common: a switch, or one machine's network."""
    look, waits, motion, topology = scene.look, scene.waits, scene.motion, scene.topology
    stuck = [h for h in waits.holds if h.joined and len(h.inside) > 1 and not (h.inferred and waits.roots)]
    if any(hold.counted for hold in stuck):
        stuck = [hold for hold in stuck if hold.counted]
        stuck = [hold for hold in stuck if not hold.assumed] or stuck  # prefer groups whose members all have counters
    if not stuck or not waits.waiting:  # a rank that joined and now does its own work waits for none
        return []
    together = waits.reached_from(waits.loose) | waits.loose
    found = []
    for hold in stuck:
        factors = _factors(hold, waits, motion, look)
        reached = (
            together.union(hold.inside, waits.reached_from(hold.inside)) if len(stuck) <= ASKED_ALONE else together
        )
        factors.append(Factor("share of the waiting ranks it explains", len(reached) / len(waits.waiting)))
        if len(stuck) > 1:
            factors.append(
                Factor(f"one of {len(stuck)} such groups", (ONE_OF_STUCK_GROUPS if hold.counted else 1) / len(stuck))
            )
        text = _sentence(hold, factors)
        because = (VerdictReason("joined-and-stuck", text),)
        if look[hold.inside[0]].wait is Wait.STORE:
            found += _store(factors, text)
            continue
        found.append(Hypothesis(Kind.GROUP, tuple(factors), hold.inside, (), because, hold))
        if hold.inferred:
            found.append(Hypothesis(Kind.SOFTWARE, tuple(factors), reasons=because))
        elif hold.assumed:
            code = Factor("code that leads elsewhere whose counters are lost", LOST_COUNTERS_BY_CODE)
            found.append(Hypothesis(Kind.SOFTWARE, (*factors, code), reasons=because))
        elif not hold.counted:
            beside = GROUP_APART_BY_CODE / GROUP_APART
            code = Factor("code whose sizes or types differ in it shows the same stacks", beside)
            found.append(Hypothesis(Kind.SOFTWARE, (*factors, code), reasons=because))
    return [*found, *_common(stuck, waits, motion, look, topology)]


def proven(scene: Scene) -> bool:
    """Whether the fault is surely inside some group: counters of all its members show that it has joined.

    And no captured rank is outside of all waits. In a healthy step some rank is.
    """
    waits = scene.waits
    joined = any(hold.joined and hold.counted and not hold.assumed and len(hold.inside) > 1 for hold in waits.holds)
    return joined and not waits.outside(scene.look)


def _factors(hold: GroupWait, waits: Waits, motion: Motion, look: Look) -> list[Factor]:
    factors = [Factor("all have joined and nothing completes", GROUP_JOINED)]
    if hold.counted:
        factors.append(Factor("counters show that all have begun", GROUP_BEGUN))
    if hold.assumed:
        factors.append(Factor(f"counters of {hold.assumed} of them are lost", 1 - hold.assumed / len(hold.inside)))
    if hold.lasting:
        factors.append(Factor("the watchdog gave it up", GROUP_STILL))
    elif _unmoved(hold, motion):
        factors.append(Factor(f"none has moved in {motion.over}", GROUP_STILL))
    if waits.outside(look):
        factors.append(Factor("a rank outside of all collectives explains it better", GROUP_BESIDE_ROOT))
    return factors


def _unmoved(hold: GroupWait, motion: Motion) -> bool:
    """Whether none of them moved, and most were seen to be unchanged. Some may have been captured once."""
    moved = {*motion.moving, *motion.travelling}
    return moved.isdisjoint(hold.inside) and 2 * len(motion.still.intersection(hold.inside)) > len(hold.inside)


def _store(factors: Sequence[Factor], text: str) -> list[Hypothesis]:
    """All ranks wait in rendezvous, and none is late: so the store itself does not answer."""
    because = (VerdictReason("store-silent", f"{text}: nobody is late, so the store they meet at does not answer"),)
    code = Factor("ranks that look for each other in different stores show the same", OTHER_STORE)
    return [
        Hypothesis(Kind.DEPENDENCY, tuple(factors), reasons=because),
        Hypothesis(Kind.SOFTWARE, (*factors, code), reasons=because),
    ]


def _sentence(hold: GroupWait, factors: Sequence[Factor]) -> str:
    still = any("moved" in factor.why or "gave it up" in factor.why for factor in factors)
    text = f"all {len(hold.inside)} ranks of {hold.dim} group {format_ranks(hold.inside)} are in {hold.what}"
    return text + (" and none has moved" if still else "")


def _in_all(holds: Sequence[GroupWait], topology: Topology) -> set[str]:
    """The machines that have a rank in each of these group waits."""
    return set(topology.machines_of(holds[0].inside)).intersection(*(topology.machines_of(h.inside) for h in holds[1:]))


def _common(
    stuck: Sequence[GroupWait], waits: Waits, motion: Motion, look: Look, topology: Topology
) -> list[Hypothesis]:
    """What several stuck groups have in common: one machine's network, or the smallest switch over them."""
    # Frames alone cannot tell stuck groups from groups whose members launched different operations.
    counted = [hold for hold in stuck if hold.counted]
    crossing = [hold for hold in counted if len(topology.machines_of(hold.inside)) > 1]
    across = len(crossing) > 1 and len(crossing) >= len(stuck) / 2
    for several in (counted, crossing if across else []):
        in_all = _in_all(several, topology) if len(several) > 1 else set()
        if len(in_all) == 1:
            machine = next(iter(in_all))
            ranks = tuple(r for r in topology.machines[machine] if any(r in hold.inside for hold in several))
            text = f"{len(several)} groups are stuck although all have joined, and {machine} is the only machine in all of them"
            factor = Factor("it is the only machine in all stuck groups", COMMON_TO_STUCK_GROUPS)
            base = _factors(several[0], waits, motion, look)
            because = (VerdictReason("in-all-stuck-groups", text),)
            return [Hypothesis(Kind.MACHINE, (*base, factor), ranks, (machine,), because)]
    if not across:
        return []
    base = _factors(crossing[0], waits, motion, look)
    switches = sorted(
        (len(machines), name)
        for name, machines in topology.switches.items()
        if all(set(machines) & set(topology.machines_of(hold.inside)) for hold in crossing)
    )
    if switches:
        least = [name for size, name in switches if size == switches[0][0]]
        name = " or ".join(least)
        machines = tuple(machine for one in least for machine in topology.switches[one])
        ranks = tuple(sorted(rank for machine in machines for rank in topology.machines.get(machine, ())))
        text = f"{len(crossing)} groups are stuck although all have joined, and each has members under switch {name}"
        hold = GroupWait("switch", ranks, (), f"behind switch {name}", counted=True, lasting=crossing[0].lasting)
        factors = (*base, Factor("all stuck groups touch it", COMMON_TO_STUCK_GROUPS))
        return [Hypothesis(Kind.GROUP, factors, ranks, (), (VerdictReason("under-one-switch", text),), hold)]
    if not any(hold.begun for hold in crossing):
        return []  # all launched, so many at once: rather, completions are not counted
    ranks = tuple(sorted({rank for hold in crossing for rank in hold.inside}))
    text = f"{len(crossing)} groups are stuck although all have joined, with {ranks_of(ranks)} in them"
    hold = GroupWait(SEVERAL, ranks, (), "several operations", counted=True, lasting=crossing[0].lasting)
    return [Hypothesis(Kind.GROUP, tuple(base), ranks, (), (VerdictReason("joined-and-stuck", text),), hold)]
