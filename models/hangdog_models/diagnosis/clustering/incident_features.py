"""The features by which incidents are compared, from the clusters that a verdict shows: so old verdicts have them, too."""

from collections import Counter
from collections.abc import Sequence

from hangdog_models.past_incidents import IncidentFeatures
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Activity, ClusterView, Kind, Verdict

#: Innermost frames that are compared. A frame further out has next to no weight.
DEEPEST = 24
#: Longest text of a frame or a wait that is kept, in characters.
LONGEST = 240
#: Verdicts by which the ranks of one machine hold the job up, whatever the cause.
KINDS = (Kind.MACHINE, Kind.SOFTWARE, Kind.DEPENDENCY)
#: What ends or stops a process wherever it is: its call site is no part of the kind.
_ANYWHERE = (Activity.STOPPED, Activity.DEAD, Activity.MISSING)
#: Ranks that are kept, and different waits of the others; the most frequent ones.
RANKS, WAITS = 64, 8
#: Kinds of evidence that are kept.
CODES = 16


def of_verdict(verdict: Verdict) -> IncidentFeatures | None:
    """The features of a judged incident; None if no single machine is named, or its call site is unknown."""
    culprit = verdict.culprit
    if culprit is None or len(culprit.machines) != 1 or verdict.kind not in KINDS:
        return None
    return of_ranks(culprit.machines[0], culprit.ranks, verdict.clusters, verdict.signs)


def of_ranks(
    machine: str, ranks: Sequence[Rank], clusters: Sequence[ClusterView], evidence: Sequence[str] = ()
) -> IncidentFeatures | None:
    """The features of an incident that these ranks of a machine caused; None where they show no kind."""
    where = next((one for one in clusters if ranks and ranks[0] in one.ranks), None)
    if where is None or not where.stack or where.activity in _ANYWHERE:
        return None
    others: Counter[str] = Counter()
    for cluster in clusters:
        if cluster is not where:
            others[f"{cluster.activity} {cluster.dim or ''} {cluster.label}"[:LONGEST]] += len(cluster.ranks)
    total = others.total()
    return IncidentFeatures(
        machine,
        tuple(ranks[:RANKS]),
        str(where.activity),
        tuple(frame[:LONGEST] for frame in where.stack[-DEEPEST:]),
        tuple((wait, count / total) for wait, count in others.most_common(WAITS)),
        tuple(sorted({code[:LONGEST] for code in evidence})[:CODES]),
    )
