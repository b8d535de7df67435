"""The expected cost of each step, in minutes of GPUs: those that wait, those isolated, and those worth a person's time.

A step takes its time. Then it has ended the stall with a probability taken from the posterior, or people have to find
the cause. A healthy phase costs nothing. A step that restarts the job costs its progress since the last checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.options import Options
from hangdog_models.topology import Topology
from hangdog_models.verdict import ISOLATES, Act, StallCause, Step, StepCost

#: Causes that may be gone after a restart. Code hangs again, and a service answers no sooner.
TRANSIENT = (StallCause.MACHINE, StallCause.GROUP, StallCause.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is at stake: the posterior, the GPUs that wait, since when, and the prices.

    - `suspected`: how probable the fault is inside of what is tested; `isolated`: inside of what is isolated.
    - `alike`: one of the isolated machines is faulty, as in a group; else all are where one is.
    - `polled`: how probable it is that the job waits for what a rank looks for time and again, which its stack names.
    - `blind`: no rank was captured and a machine's own hardware has findings, so captures would add little.
    """

    causes: Mapping[StallCause, float]
    gpus: int
    gpus_each: float
    stalled_min: float
    options: Options
    suspected: float = 0.0
    isolated: float = 0.0
    alike: bool = False
    polled: float = 0.0
    blind: bool = False

    @property
    def stuck(self) -> float:
        """The probability that the job does not go on by itself."""
        return max(0.0, 1.0 - self.causes[StallCause.HEALTHY])


def at_stake(
    topology: Topology, causes: Mapping[StallCause, float], stalled_s: float | None, options: Options
) -> Outlook:
    """The outlook of a job without a suspect yet."""
    known = {cause: causes.get(cause, 0.0) for cause in StallCause}
    placed = sum(map(len, topology.machines.values()))
    each = placed / len(topology.machines) if topology.machines else 1.0
    return Outlook(known, topology.world_size, each, (stalled_s or 0.0) / 60, options)


def ordered(steps: tuple[Step, ...], outlook: Outlook) -> tuple[Step, ...]:
    """The steps with their costs, the cheapest first; equals in the order given.

    Evidence is worth what is done with it, so the other steps are priced before it.
    """
    priced = {step: expected(step, outlook) for step in steps if step.do is not Act.COLLECT}
    best = min(priced.values(), key=total, default=expected(Step(Act.ASK_PEOPLE, (), ""), outlook))
    costs = [(step, priced.get(step) or _collect(outlook, best)) for step in steps]
    return tuple(
        Step(step.do, step.machines, step.why, cost) for step, cost in sorted(costs, key=lambda one: total(one[1]))
    )


def total(cost: StepCost) -> float:
    return cost.waiting + cost.machines + cost.people


def expected(step: Step, outlook: Outlook) -> StepCost:
    """The expected cost of a step other than to collect evidence."""
    prices, causes, stuck = outlook.options.prices, outlook.causes, outlook.stuck
    rework = causes[StallCause.HEALTHY] * prices.rework
    if step.do in ISOLATES:
        left = max(0.0, stuck - outlook.isolated)
        count = len(step.machines)
        innocent = count - outlook.isolated if outlook.alike else count * (1 - outlook.isolated)
        return _cost(outlook, _swap(outlook, count) + rework + left * prices.people, left, innocent)
    if step.do is Act.TEST:
        found = min(stuck, prices.test_finds * outlook.suspected)
        minutes = prices.test + rework + found * _swap(outlook, 1) + (stuck - found) * prices.people
        return _cost(outlook, minutes, stuck - found)
    if step.do is Act.RESTART:
        left = stuck - prices.restart_cures * sum(causes[cause] for cause in TRANSIENT)
        blind = left * (1 - prices.restart_tells)  # what hangs again may tell the machine from the code
        cost = _cost(outlook, prices.restart + rework + left * prices.recurrence + blind * prices.people, blind)
        return _plus(cost, _known(outlook), left * prices.restart_tells)
    if step.do is Act.FIX_CODE:
        return _repair(outlook, causes[StallCause.SOFTWARE] + outlook.polled)
    if step.do is Act.RESTORE_SERVICE:
        return _repair(outlook, causes[StallCause.DEPENDENCY])
    # a phase that has lasted for so long may last as long again
    waited = max(prices.look, outlook.stalled_min) if step.do is Act.WAIT else 0.0
    return _cost(outlook, stuck * (waited + prices.people), stuck)


def _collect(outlook: Outlook, best: StepCost) -> StepCost:
    """The cost of another capture. If it decides, the right step follows; else the best one that is open today."""
    prices = outlook.options.prices
    decides = 0.0 if outlook.blind else prices.look_decides
    looked = _cost(outlook, outlook.stuck * prices.look, 0.0)
    return _plus(_plus(looked, _known(outlook), decides), best, 1 - decides)


def _plus(cost: StepCost, more: StepCost, share: float) -> StepCost:
    return StepCost(
        cost.waiting + share * more.waiting, cost.machines + share * more.machines, cost.people + share * more.people
    )


def _known(outlook: Outlook) -> StepCost:
    """What the job still costs once its cause is known. An unknown cause may turn out to be any, so the dearest counts."""
    prices, swap = outlook.options.prices, _swap(outlook, 1)
    minutes = {
        StallCause.MACHINE: swap,
        StallCause.GROUP: prices.test + swap,
        StallCause.SLOW: swap,
        StallCause.SOFTWARE: prices.repair,
        StallCause.DEPENDENCY: prices.repair,
        StallCause.UNKNOWN: prices.repair,
        StallCause.HEALTHY: 0.0,
    }
    by_people = (StallCause.SOFTWARE, StallCause.DEPENDENCY, StallCause.UNKNOWN)
    called = sum(p * minutes[cause] for cause, p in outlook.causes.items() if cause in by_people)
    waiting = sum(p * minutes[cause] for cause, p in outlook.causes.items())
    return StepCost(outlook.gpus * waiting, 0.0, prices.person_gpus * called)


def _repair(outlook: Outlook, right: float) -> StepCost:
    """People repair what the stack names; if the cause is another, they have to find it after that."""
    prices, left = outlook.options.prices, max(0.0, outlook.stuck - right)
    minutes = prices.repair + left * prices.people
    return StepCost(outlook.gpus * minutes, 0.0, prices.person_gpus * minutes)


def _cost(outlook: Outlook, minutes: float, left: float, innocent: float = 0.0) -> StepCost:
    """The whole job waits for some minutes; if the stall is left, people are called."""
    prices = outlook.options.prices
    out = innocent * outlook.gpus_each * prices.innocent
    return StepCost(outlook.gpus * minutes, out, prices.person_gpus * left * prices.people)


def _swap(outlook: Outlook, count: int) -> float:
    """Minutes until the job runs without some of its machines."""
    prices, spares = outlook.options.prices, outlook.options.spares
    if spares is None:
        return prices.requeue
    return prices.standby if spares >= count else prices.replacement + prices.requeue
