"""Whether what is said with a probability is as often true: who holds a job up, why, and whether the fault is in what is evicted.

A verdict says three things with a probability. Each is held to what its case expects:

- **who**, the `culprit`. It is true where each machine named is guilty, or where those named hold all who are, as a group does in which
  one is broken. Where nobody is guilty it is true if the others wait for the healthy phase of who is named, as for rank 0 that saves a
  checkpoint: who is another question than why. Else it is false if it is named for a cause that the case does not accept. If the case
  accepts the cause, and does not say who it would be, that counts neither way.
- **why**, the likeliest of the `causes`. A case accepts several where its evidence cannot tell them apart. One that is not accepted is
  false. One that is accepted is as true as its share of the probability of all that are, so it is wholly true where it is the
  only one. To call it wholly true among several would make every verdict look too modest. Not counted: an unknown cause,
  and a case that accepts `undetermined` alone.
- **evict**, the `coverage` of an eviction. It is true where somebody guilty is evicted, and nobody who is not to be.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, StallCause, Verdict
from worlds.score import score
from worlds.truth import wanted

BINS = 10
#: What is said to be as good as sure.
SURE = 0.99
#: What a verdict says with a probability.
SAID = ("who", "why", "evict")
_CAUSES = {Kind.NONE: StallCause.HEALTHY, Kind.UNDETERMINED: StallCause.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Said:
    """A probability, and how much of what was said with it is true: 0 or 1, or a share between."""

    probability: float
    true: float


@dataclass(frozen=True, slots=True)
class Bin:
    """What was said with nearly the same probability: its mean, how much of it is true, and how often it was said."""

    said: float
    true: float
    count: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that is said of one thing in one world."""

    said: Sequence[Said]

    @property
    def bins(self) -> Mapping[int, Bin]:
        """By the first decimal of the probability; those that nothing is in are left out."""
        return {
            at: Bin(
                sum(one.probability for one in held) / len(held), sum(one.true for one in held) / len(held), len(held)
            )
            for at, held in self._held()
        }

    @property
    def gap(self) -> float:
        """How far what is said is from what is true, in the mean over all that is said, bin by bin."""
        off = sum(abs(one.said - one.true) * one.count for one in self.bins.values())
        return off / len(self.said) if self.said else 0.0

    @property
    def by_chance(self) -> float:
        """The gap that is to be expected of so few cases even where each probability is the true one."""
        spread = sum(sqrt(sum(one.probability * (1 - one.probability) for one in held)) for _, held in self._held())
        return sqrt(2 / pi) * spread / len(self.said) if self.said else 0.0

    @property
    def sure(self) -> tuple[float, int]:
        """Of all that is as good as sure: how much is true, and how often it was said."""
        held = [one.true for one in self.said if one.probability >= SURE]
        return sum(held), len(held)

    def _held(self) -> Iterator[tuple[int, Sequence[Said]]]:
        held: dict[int, list[Said]] = {}
        for one in self.said:
            held.setdefault(min(BINS - 1, int(one.probability * BINS)), []).append(one)
        yield from sorted(held.items())


def who(want: Mapping[str, Any], verdict: Verdict, shape: Topology) -> Said | None:
    """The culprit's probability, and whether it is one."""
    culprit, truth = verdict.culprit, wanted(want, shape)
    if culprit is None:
        return None
    named = frozenset(culprit.machines or [f"rank {rank}" for rank in culprit.ranks])
    if named and named <= truth.at_work:
        return Said(culprit.probability, 1.0)
    if truth.guilty:
        return Said(culprit.probability, float(truth.names(named)))
    likeliest = max(culprit.causes, key=lambda cause: culprit.causes[cause], default=StallCause.UNKNOWN)
    return None if likeliest in _accepted(want) else Said(culprit.probability, 0.0)


def why(want: Mapping[str, Any], verdict: Verdict) -> Said | None:
    """The likeliest cause's probability, and how much of it is true."""
    accepted = _accepted(want) - {StallCause.UNKNOWN}
    if not accepted or not verdict.causes:
        return None
    cause = max(verdict.causes, key=lambda one: verdict.causes[one])
    said = verdict.causes[cause]
    if cause is StallCause.UNKNOWN:
        return None
    return Said(said, said / sum(verdict.causes[one] for one in accepted) if cause in accepted else 0.0)


def evicted(want: Mapping[str, Any], verdict: Verdict, shape: Topology) -> Said | None:
    """The coverage of an eviction, and whether the fault is inside."""
    if not verdict.evict.machines:
        return None
    guilty = wanted(want, shape).guilty
    inside = not guilty or bool(guilty.intersection(verdict.evict.machines))
    return Said(verdict.evict.coverage, float(inside and not score("", want, verdict, shape).innocent))


def calibrations(judged: Iterable[tuple[Mapping[str, Any], Verdict, Topology]]) -> Mapping[str, Calibration]:
    """How well each of `SAID` is calibrated over the verdicts of a world, each with what its case expects."""
    found: dict[str, list[Said | None]] = {name: [] for name in SAID}
    for want, verdict, shape in judged:
        found["who"].append(who(want, verdict, shape))
        found["why"].append(why(want, verdict))
        found["evict"].append(evicted(want, verdict, shape))
    return {name: Calibration([one for one in said if one is not None]) for name, said in found.items()}


def heads() -> Iterator[str]:
    """The first lines of a table in markdown; a cell of a bin holds what was said and what is true, in percent, and how often."""
    yield (
        "| world | says | n | gap | by chance | said >= 0.99 and true | "
        + " | ".join(f"{at / BINS:.1f}" for at in range(BINS))
        + " |"
    )
    yield "|---|---|---:|---:|---:|---:|" + "---:|" * BINS


def lines(world: str, of: Mapping[str, Calibration]) -> Iterator[str]:
    """A line for each thing that is said in a world."""
    for name, one in of.items():
        true, sure = one.sure
        bins = one.bins
        cells = (
            f"{100 * bins[at].said:.0f}: {100 * bins[at].true:.0f} ({bins[at].count})" if at in bins else ""
            for at in range(BINS)
        )
        yield (
            f"| {world} | {name} | {len(one.said)} | {one.gap:.3f} | {one.by_chance:.3f} | {round(true, 1):g} of {sure} | "
            + " | ".join(cells)
            + " |"
        )


def _accepted(want: Mapping[str, Any]) -> frozenset[StallCause]:
    """The causes that a case accepts; where it accepts `undetermined`, an unknown one is among them."""
    kinds = (Kind(kind) for kind in want["verdict"])
    return frozenset(_CAUSES.get(kind) or StallCause(str(kind)) for kind in kinds)
