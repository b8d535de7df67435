"""The belief about a stopped job: the prior of every fault, and every outcome since."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from hangdog_models.planning.campaign.fault import FIXED, FailureMode
from hangdog_models.planning.campaign.launch import Launch, LaunchOutcome

#: How far from 1 a sum of probabilities may be: people write them, and they are summed as floats.
SLACK = 1e-6


@dataclass(frozen=True)
class Belief:
    """The prior and the evidence. `machines`, `leaf`, `link` and `none` sum to 1.

    - `machines`: the probability of each machine that it, alone or first, is the fault. In the topology's order, with
      neighbours beside each other.
    - `leaf`, `link`: the probability of a faulty leaf switch or link, shared equally by all of them.
    - `none`: the probability of a fault that no diagnostic could show.
    - `further`: the probability of another fault beside one.
    - `leafs`: the machines under each leaf switch.
    - `gone`: machines that answer no more. Nothing is launched on them; their earlier outcomes count.
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
        """The index of each machine in the belief's order."""
        return {name: at for at, name in enumerate(self.machines)}


def update(belief: Belief, outcomes: Iterable[LaunchOutcome]) -> Belief:
    """The belief with these outcomes added. Their order does not matter.

    Raises ValueError for an outcome on a machine that is not in this belief.
    """
    came = tuple(outcomes)
    for outcome in came:
        if strange := set(outcome.launch.machines) - belief.number.keys():
            raise ValueError(f"an outcome names machines that nobody asked about: {', '.join(sorted(strange)[:3])}")
    return replace(belief, evidence=tuple(sorted((*belief.evidence, *came), key=lambda one: _key(belief, one))))


def members(belief: Belief, launch: Launch) -> tuple[int, ...]:
    """The numbers of a launch's machines, ascending, each once."""
    return tuple(sorted({belief.number[name] for name in launch.machines}))


def _key(belief: Belief, outcome: LaunchOutcome) -> tuple[object, ...]:
    """A sort key that is equal only for equal outcomes."""
    launch = outcome.launch
    asked = launch.diagnostic.name, members(belief, launch), launch.repetitions
    return *asked, outcome.result, outcome.reason, launch.machines, repr(launch.diagnostic)
