"""Plans a campaign of replays: the fixed groups of each phase first, then further groups for those still in doubt.

The phases are those of replay.py. What they found counts as any other launch does, so that a machine is convicted by
the same rule: two failed groups that cross in it are two failures, and where many were suspected a third is asked for.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt

from hangdog_models.errors import WrongUse
from hangdog_models.planning.campaign.belief import Belief
from hangdog_models.planning.campaign.launch import CampaignRound, Diagnostic, Launch, LaunchBudget, LaunchResult
from hangdog_models.planning.campaign.replay import phases
from hangdog_models.planning.campaign.round_planner import Because, Stop, plan

#: Names of the phases, in their order.
PHASES = ("neighbours", "strides", "diagonals")
#: Machines of a group when nobody says how many: a larger one shows no more, and ends more work when it fails.
LARGEST = 16
#: With fewer machines no two groups of one machine differ: they would always fail together.
FEWEST = 3
#: Seconds without which no replay begins: a program that imports torch has not even started by then.
LEAST_REPLAY_S = 5.0
#: Seconds after which agents end any test (diagnose_most_s): what they end would count as a replay that hangs.
MOST_REPLAY_S = 3600.0
#: Characters of the name that an administrator gave a replay.
MOST_NAME = 100


def group_size(machines: int, wanted: int = 0) -> int:
    """Machines of a group: `wanted`, or where that is 0 the most that two phases tell apart. Raises WrongUse."""
    if machines < FEWEST:
        raise WrongUse(
            f"level 5 needs {FEWEST} machines or more that can be tested",
            "groups of fewer never differ: name more with --machines",
            code="too-few-machines",
        )
    size = wanted or min(max(2, isqrt(machines)), LARGEST)
    if size < 2:
        raise WrongUse("a replay needs groups of two machines or more", code="out-of-range")
    if size > -(-machines // size):
        least = size * (size - 1) + 1
        raise WrongUse(
            f"groups of {size} cross in one machine only if there are {least} machines or more, not {machines}",
            "choose smaller groups, or name more machines",
            code="too-few-machines",
        )
    return size


def groups(machines: Sequence[str], size: int) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """The groups of each phase, by name. Where the machines do not fill all groups, some have fewer than `size`."""
    count = -(-len(machines) // size)
    return tuple(
        tuple(tuple(machines[at] for at in group if at < len(machines)) for group in phase)
        for phase in phases(size, count)
    )


def plan_replay(
    belief: Belief, diagnostic: Diagnostic, machines: Sequence[str], size: int, began: int, budget: LaunchBudget
) -> CampaignRound | Stop:
    """The next launches, or the end, after `began` rounds. `machines` are those that could be tested at the start.

    A group that has fewer machines than `diagnostic.least`, or a machine that answers no more, is left out or shrinks.
    """
    step = plan(belief, (diagnostic,), budget)
    fixed = groups(machines, size)
    crowd = _all_failed(belief)
    if began >= len(fixed):
        return _shared(belief, diagnostic) if crowd else step
    if isinstance(step, Stop) and (step.reason is Because.SPENT or (step.reason is Because.SETTLED and not crowd)):
        return step
    left = [tuple(name for name in group if name not in belief.gone) for group in fixed[began]]
    launches = tuple(Launch(diagnostic, group) for group in left if len(group) >= diagnostic.least)
    if not launches:
        return step
    bits = step.bits if isinstance(step, CampaignRound) else 0.0
    return CampaignRound(launches, bits, f"phase {began + 1} of {len(fixed)}, {PHASES[began]}, groups of {size}")


def _all_failed(belief: Belief) -> bool:
    """Whether every replay that came to an end failed: then no group differs from another."""
    results = {one.result for one in belief.evidence} - {LaunchResult.INCONCLUSIVE}
    return results == {LaunchResult.FAIL}


def _shared(belief: Belief, diagnostic: Diagnostic) -> Stop:
    stop = plan(belief, (diagnostic,), LaunchBudget(0.0, 0, 0, 0))
    assert isinstance(stop, Stop)
    return replace(stop, reason=Because.SHARED, evict=(), tell=())
