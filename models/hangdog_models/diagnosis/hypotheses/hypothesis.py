"""One explanation of what was seen: what it blames, and every factor of its odds."""

from dataclasses import dataclass, replace
from math import prod

from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.verdict import Kind, VerdictReason

#: The exponent over all odds.
SHARPNESS = likelihood("sharpness")


@dataclass(frozen=True, slots=True)
class Factor:
    """One piece of evidence, and the number it multiplies the odds by."""

    why: str
    times: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One explanation; its `factors` multiply to its odds relative to the others.

    - `ranks`: those it rests on, if it blames a machine or software.
    - `units`: the machines it blames. A rank whose machine is unknown is a unit of its own, written `rank 3`.
    - `hearsay`: it rests on what others report of them, so it names machines and evicts none.
    - `shares`: its part of the odds, where several causes share the odds that the same ranks hold the job up.
    """

    kind: Kind
    factors: tuple[Factor, ...]
    ranks: tuple[Rank, ...] = ()
    units: tuple[str, ...] = ()
    reasons: tuple[VerdictReason, ...] = ()
    hold: GroupWait | None = None
    hearsay: bool = False
    shares: tuple[float, ...] = ()

    @property
    def odds(self) -> float:
        return prod(factor.times for factor in self.factors)

    def moved(self, *factors: Factor) -> "Hypothesis":
        """The same explanation with more evidence for or against it."""
        return replace(self, factors=(*self.factors, *factors))

    def with_reasons(self, *because: VerdictReason) -> "Hypothesis":
        """The same explanation with more reasons for people."""
        return replace(self, reasons=(*self.reasons, *because))


def odds(why: str, times: float) -> tuple[Factor, ...]:
    """The factors of an explanation with a single piece of evidence."""
    return (Factor(why, times),)
