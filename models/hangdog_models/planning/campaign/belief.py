"""What is believed of a stopped job: the prior of every fault, and every outcome since."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from hangdog_models.planning.campaign.fault import FIXED, FailureMode
from hangdog_models.planning.campaign.launch import Launch, LaunchOutcome

#: How far probabilities that should add up to 1 may be off: they are written by people and summed in floats.
SLACK = 1e-6


@dataclass(frozen=True)
class Belief:
    """The prior and the evidence.

    `machines` gives the probability of each machine that it, alone or first, is the fault; its order is the
    topology's, neighbours beside each other. `leaf` and `link` are the probabilities of a faulty leaf switch or link,
    shared alike by all of them, `none` that of nothing the diagnostics could show. Together they are 1.
    `further` is the probability of another fault beside one. `leafs` names the machines under each leaf switch.
    `gone` are machines that can be asked no more: nothing is launched on them, what they answered before counts.
    """

    machines: Mapping[str, float]
    none: float
    leafs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    leaf: float = 0.0
    link: float = 0.0
    further: float = 0.05
    modes: tuple[FailureMode, ...] = (FIXED,)
    evidence: tuple[LaunchOutcome, ...] = ()
    gone: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        parts = (*self.machines.values(), self.none, self.leaf, self.link)
        if not self.machines or min(parts) < 0 or abs(sum(parts) - 1) > SLACK:
            raise ValueError("the probabilities of machines, leafs, links and none do not add up to 1")
        if self.leaf and not self.leafs:
            raise ValueError("a leaf is suspected, but none is named")
        if not 0 <= self.further < 1:
            raise ValueError("further is a probability below 1")
        if abs(sum(mode.share for mode in self.modes) - 1) > SLACK:
            raise ValueError("the shares of the failure modes do not add up to 1")
        if strange := {name for names in self.leafs.values() for name in names} - self.machines.keys():
            raise ValueError(f"under the leafs are machines that nobody named: {', '.join(sorted(strange)[:3])}")

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The place of each machine in the belief's order."""
        return {name: at for at, name in enumerate(self.machines)}


def update(belief: Belief, outcomes: Iterable[LaunchOutcome]) -> Belief:
    """The belief with these outcomes, too. Evidence has no order: the same outcomes make the same belief in any.

    Raises ValueError for an outcome on a machine that is not of this belief.
    """
    came = tuple(outcomes)
    for outcome in came:
        if strange := set(outcome.launch.machines) - belief.number.keys():
            raise ValueError(f"an outcome names machines that nobody asked about: {', '.join(sorted(strange)[:3])}")
    return replace(belief, evidence=tuple(sorted((*belief.evidence, *came), key=lambda one: _key(belief, one))))


def members(belief: Belief, launch: Launch) -> tuple[int, ...]:
    """The numbers of a launch's machines, ascending and each once."""
    return tuple(sorted({belief.number[name] for name in launch.machines}))


def _key(belief: Belief, outcome: LaunchOutcome) -> tuple[object, ...]:
    """An order in which only equal outcomes are alike."""
    launch = outcome.launch
    asked = launch.diagnostic.name, members(belief, launch), launch.repetitions
    return *asked, outcome.result, outcome.reason, launch.machines, repr(launch.diagnostic)
