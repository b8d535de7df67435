"""How right each world is judged by a table, and how far what is said with a probability is true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accuracy import peer
from fit.reweighed import judging_by
from fit.truth import wanted
from hangdog_models.rules.likelihoods import Likelihood
from hangdog_models.verdict import Verdict
from worlds.case import Case
from worlds.score import Result, score

#: Bins of probabilities, whose mean gap to what is true is told.
BINS = 10
#: What is said to be as good as sure.
SURE = 0.99


@dataclass(frozen=True, slots=True)
class Said:
    """A probability that a verdict gave to whom it names, and whether that one is guilty."""

    probability: float
    true: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A world judged by a table: the verdicts' worth, and of each verdict that names somebody what it said."""

    results: Sequence[Result]
    said: Sequence[Said]

    @property
    def gap(self) -> float:
        """How far what is said is from what is true, in the mean over all that is said, bin by bin."""
        bins: dict[int, list[Said]] = {}
        for one in self.said:
            bins.setdefault(min(BINS - 1, int(one.probability * BINS)), []).append(one)
        off = [abs(sum(one.probability for one in held) - sum(one.true for one in held)) for held in bins.values()]
        return sum(off) / len(self.said) if self.said else 0.0

    @property
    def sure(self) -> tuple[int, int]:
        """Of all that is as good as sure: how many are true, and how many there are."""
        held = [one.true for one in self.said if one.probability >= SURE]
        return sum(held), len(held)


def judge(cases: Sequence[Case], rows: Mapping[str, Likelihood]) -> Judged:
    """Judges cases by a table."""
    with judging_by(rows):
        from hangdog_models.diagnosis.judge import diagnose

        verdicts = [diagnose(case.snapshot, case.topology) for case in cases]
    results = [
        score(case.name, case.want, verdict, case.topology) for case, verdict in zip(cases, verdicts, strict=True)
    ]
    said = [found for case, verdict in zip(cases, verdicts, strict=True) for found in _said(case, verdict)]
    return Judged(results, said)


def _said(case: Case, verdict: Verdict) -> Sequence[Said]:
    guilty = wanted(case.want, case.topology).guilty
    if verdict.culprit is None or not guilty:
        return ()
    named = verdict.culprit.machines or [f"rank {rank}" for rank in verdict.culprit.ranks]
    return (Said(verdict.culprit.probability, bool(guilty.intersection(named))),)


def by_peer(cases: Sequence[Case]) -> tuple[int, int]:
    """What ByteRobust's method does with the same evidence: how many cases are right, and in how many it evicts who is innocent.

    It is right where it evicts all who are guilty, or nobody where nobody may be evicted.
    """
    right = innocent = 0
    for case in cases:
        evicted = set(peer.aggregate(case.snapshot, case.topology).machines)
        guilty = wanted(case.want, case.topology).guilty
        nobody = case.want.get("evict_at_most", 0) == 0
        right += not evicted if nobody else guilty <= evicted
        innocent += bool(evicted - (set() if nobody else guilty))
    return right, innocent
