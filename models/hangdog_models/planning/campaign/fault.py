"""Where a fault may be, and how often it shows."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, expm1, log1p


class Where(StrEnum):
    """Only a machine's fault evicts it: a link or a leaf is reported to the network team."""

    MACHINE = "machine"
    LINK = "link"
    LEAF = "leaf"


@dataclass(frozen=True, slots=True)
class FaultSite:
    """A machine; the link between two machines, with all that lies on it; or a leaf switch.

    `names` are in the belief's order.
    """

    where: Where
    names: tuple[str, ...]

    def __str__(self) -> str:
        return self.names[0] if self.where is Where.MACHINE else f"{self.where} {' - '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class FailureMode:
    """A way to fail. `manifestation`: the probability that one repetition shows it. `share`: the share of faults with
    this mode.

    A fixed fault has 1. Intermittent faults have no single rate: a grid of modes stands for what is believed. A pass
    shifts belief towards the rarer modes, never to 0.
    """

    name: str
    manifestation: float = 1.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.manifestation <= 1 and 0 < self.share <= 1):
            raise ValueError(f"{self.name}: manifestation and share are probabilities above 0")

    def seen_in(self, repetitions: int) -> float:
        """The probability that it shows in at least one of so many repetitions: 1 - (1 - p)^r."""
        return -expm1(repetitions * log1p(-self.manifestation)) if self.manifestation < 1 else 1.0


FIXED = FailureMode("fixed")


def repetitions(manifestation: float, coverage: float, phases: int = 1) -> int:
    """The repetitions that show a fault with probability `coverage` in every one of `phases` launches."""
    if not (0 < manifestation <= 1 and 0 < coverage < 1 and phases >= 1):
        raise ValueError("manifestation and coverage are probabilities above 0, coverage below 1, and there is a phase")
    if manifestation == 1:
        return 1
    return ceil(
        log1p(-(coverage ** (1 / phases))) / log1p(-manifestation) - 1e-9
    )  # 1e-9: an exact quotient stays itself


def grid(*manifestations: float) -> tuple[FailureMode, ...]:
    """Equally probable modes, for an unknown manifestation."""

    def modes() -> Iterator[FailureMode]:
        for p in manifestations:
            yield FailureMode("fixed" if p == 1 else f"shows in {p:g} of runs", p, 1 / len(manifestations))

    return tuple(modes())
