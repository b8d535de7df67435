"""A case as a conditional logit: its explanations, which are right, and how each row of the table moves them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from fit.traced import Row, moved_by
from hangdog_models.topology import Topology
from worlds.case import Case
from worlds.truth import Truth, wanted

if TYPE_CHECKING:
    from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis


@dataclass(frozen=True, slots=True)
class Scene:
    """A case of a world. For each explanation: the logarithm of its odds, whether it is right, and the rows that move it."""

    world: str
    name: str
    log_odds: Sequence[float]
    is_right: Sequence[bool]
    moved_by: Sequence[Mapping[Row, float]]


def scene(case: Case) -> Scene | None:
    """The scene of a case; None where nothing can be learned of it.

    So it is where the job is seen to move, which no explanation is asked about, and where all explanations are right or none.
    """
    # asked for here: the diagnosis that is imported by then reads the traced table
    from hangdog_models.diagnosis import judge
    from hangdog_models.diagnosis.verdict import conclude, moving_jobs

    seen = judge.investigate(case.snapshot, case.topology)
    if moving_jobs.judge(seen) is not None:
        return None
    truth = wanted(case.want, case.topology)
    weighed = [(one, p) for one, p in conclude.probabilities(seen.hypotheses) if p > 0.0]
    are_right = [_tells(one, truth, case.topology) for one, _ in weighed]
    if all(are_right) or not any(are_right):
        return None
    return Scene(case.world, case.name, [log(p) for _, p in weighed], are_right, [moved_by(p) for _, p in weighed])


def _tells(explanation: "Hypothesis", truth: Truth, topology: Topology) -> bool:
    hold = explanation.hold
    if hold is None:
        return truth.told_by(explanation.kind, frozenset(explanation.units), together=False)
    ranks = hold.awaited or explanation.ranks
    units = frozenset(topology.machine(rank) or f"rank {rank}" for rank in ranks)
    return truth.told_by(explanation.kind, units, together=not hold.awaited)
