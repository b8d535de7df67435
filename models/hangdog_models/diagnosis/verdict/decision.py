"""What each step is expected to cost, in minutes of GPUs: those of the job that wait, those out of use, those a person is worth.

A step takes its time. Then it has ended the stall, with a probability that is read off the posterior, or people have to find out.
A healthy phase waits for nobody; a step that starts the job anew costs it what it had done since its last checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.options import Options
from hangdog_models.topology import Topology
from hangdog_models.verdict import ISOLATES, Act, StallCause, Step, StepCost

#: Causes that may be gone once the processes are started anew: code hangs again, and a service answers no sooner.
TRANSIENT = (StallCause.MACHINE, StallCause.GROUP, StallCause.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is at stake: the posterior, who waits, since when, and what a step costs.

    `suspected`: how probable the fault is inside of what is tested; `isolated`: of what is isolated.
    `alike`: of the machines that are isolated one is guilty, as of a group; else all are where one is.
    `blind`: nothing of the ranks was captured and a machine's own hardware speaks, so captures would tell little.
    """

    causes: Mapping[StallCause, float]
    gpus: int
    gpus_each: float
    stalled_min: float
    options: Options
    suspected: float = 0.0
    isolated: float = 0.0
    alike: bool = False
    blind: bool = False

    @property
    def stuck(self) -> float:
        """How probable it is that the job does not go on by itself."""
        return max(0.0, 1.0 - self.causes[StallCause.HEALTHY])


def at_stake(
    topology: Topology, causes: Mapping[StallCause, float], stalled_s: float | None, options: Options
) -> Outlook:
    """The outlook of a job, before anybody is suspected."""
    known = {cause: causes.get(cause, 0.0) for cause in StallCause}
    placed = sum(map(len, topology.machines.values()))
    each = placed / len(topology.machines) if topology.machines else 1.0
    return Outlook(known, topology.world_size, each, (stalled_s or 0.0) / 60, options)


def ordered(steps: tuple[Step, ...], outlook: Outlook) -> tuple[Step, ...]:
    """The steps with their costs, the cheapest first; of equals in the order given.

    Evidence is worth what is done with it, so what else may be done is priced before it.
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
    """The expected cost of a step that is no collecting of evidence."""
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
        return _repair(outlook, causes[StallCause.SOFTWARE])
    if step.do is Act.RESTORE_SERVICE:
        return _repair(outlook, causes[StallCause.DEPENDENCY])
    # a phase that has lasted for so long may last as long again
    waited = max(prices.look, outlook.stalled_min) if step.do is Act.WAIT else 0.0
    return _cost(outlook, stuck * (waited + prices.people), stuck)


def _collect(outlook: Outlook, best: StepCost) -> StepCost:
    """Looks once more: where that decides, the right step follows, and else the best one that is open today."""
    prices = outlook.options.prices
    decides = 0.0 if outlook.blind else prices.look_decides
    looked = _cost(outlook, outlook.stuck * prices.look, 0.0)
    return _plus(_plus(looked, _known(outlook), decides), best, 1 - decides)


def _plus(cost: StepCost, more: StepCost, share: float) -> StepCost:
    return StepCost(
        cost.waiting + share * more.waiting, cost.machines + share * more.machines, cost.people + share * more.people
    )


def _known(outlook: Outlook) -> StepCost:
    """What the job costs yet once its cause is known; one that is unknown today turns out to be any, so the dearest counts."""
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
    """People repair what the stack names; where it is something else they have to find out after that."""
    prices, left = outlook.options.prices, max(0.0, outlook.stuck - right)
    minutes = prices.repair + left * prices.people
    return StepCost(outlook.gpus * minutes, 0.0, prices.person_gpus * minutes)


def _cost(outlook: Outlook, minutes: float, left: float, innocent: float = 0.0) -> StepCost:
    """The whole job waits for some minutes; where the stall is left, people are called."""
    prices = outlook.options.prices
    out = innocent * outlook.gpus_each * prices.innocent
    return StepCost(outlook.gpus * minutes, out, prices.person_gpus * left * prices.people)


def _swap(outlook: Outlook, count: int) -> float:
    """Minutes until the job runs without some of its machines."""
    prices, spares = outlook.options.prices, outlook.options.spares
    if spares is None:
        return prices.requeue
    return prices.standby if spares >= count else prices.replacement + prices.requeue
