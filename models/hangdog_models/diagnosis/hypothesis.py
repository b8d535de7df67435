"""One explanation of the waits, and what it blames."""

from dataclasses import dataclass

from hangdog_models.diagnosis.waits import Hold
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Kind


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One explanation: `odds` relative to the others; for a machine or software one, the ranks it rests on.

    `units` are the machines it blames; a rank whose machine is unknown is a unit of its own, written `rank 3`.
    """

    kind: Kind
    odds: float
    ranks: tuple[Rank, ...] = ()
    units: tuple[str, ...] = ()
    because: tuple[str, ...] = ()
    hold: Hold | None = None
