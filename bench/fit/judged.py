"""How right each world is judged by a table, and how far what is said with a probability is true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accuracy import peer
from fit.reweighed import judging_by
from hangdog_models.rules.likelihoods import Likelihood
from worlds.calibration import Calibration, calibrations
from worlds.case import Case
from worlds.score import Result, score
from worlds.truth import wanted


@dataclass(frozen=True, slots=True)
class Judged:
    """A world judged by a table: the verdicts' worth, and how well each thing is calibrated that they say with a probability."""

    results: Sequence[Result]
    calibrations: Mapping[str, Calibration]


def judge(cases: Sequence[Case], rows: Mapping[str, Likelihood]) -> Judged:
    """Judges cases by a table."""
    with judging_by(rows):
        from hangdog_models.diagnosis.judge import diagnose

        verdicts = [diagnose(case.snapshot, case.topology) for case in cases]
    results = [
        score(case.name, case.want, verdict, case.topology) for case, verdict in zip(cases, verdicts, strict=True)
    ]
    return Judged(
        results,
        calibrations((case.want, verdict, case.topology) for case, verdict in zip(cases, verdicts, strict=True)),
    )


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
