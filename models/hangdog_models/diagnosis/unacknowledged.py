"""What it tells that data of trainers stays unacknowledged: their network lost it or a machine is gone, and no code did it."""

from collections.abc import Sequence

from hangdog_models.diagnosis.hypothesis import Factor, Hypothesis, odds
from hangdog_models.findings import UNACKNOWLEDGED, Finding
from hangdog_models.verdict import Kind

#: What is left of the code: a process that hangs still acknowledges, for its kernel does. Not nothing, for a connection
#: that the collectives do not use may be lost beside a bug.
NOT_BY_CODE = 0.05
#: Machines that tell of it, and other ends they tell of, at least: of one machine, or of one end, it may as well be a service
#: outside of the job that is away, a tracker of experiments for instance. A network that loses messages between two machines
#: of a ring loses those of both directions.
TOLD_BY, ENDS = 2, 2
#: Odds of the network where nothing else speaks for it: as of any path that is named by whoever suffers from it. A machine
#: that answers nobody is likelier by far (its neighbours see the same).
BY_NETWORK = 12.0
_BETWEEN = (
    "what machines of the job send each other is not acknowledged: their network loses it, or one of them is gone"
)
#: Connections that a verdict tells of.
_SAID = 3


def weighed(found: Sequence[Hypothesis], findings: Sequence[Finding]) -> tuple[Hypothesis, ...]:
    """The explanations as they are beside what was sent and not acknowledged; which end is at fault it does not tell."""
    told = [finding for finding in findings if finding.code == UNACKNOWLEDGED]
    if len({finding.machine for finding in told}) < TOLD_BY or len({finding.device for finding in told}) < ENDS:
        return tuple(found)
    because = tuple(dict.fromkeys(_sentence(finding) for finding in told))[:_SAID]
    against = Factor("what trainers sent stays unacknowledged, which no code does", NOT_BY_CODE)
    moved = [one.moved(against) if one.kind is Kind.SOFTWARE else one for one in found]
    if any(one.kind is Kind.GROUP for one in found):
        return tuple(one.told(*because) if one.kind is Kind.GROUP else one for one in moved)
    network = odds("what trainers sent stays unacknowledged", BY_NETWORK)
    return (*moved, Hypothesis(Kind.GROUP, network, because=(_BETWEEN, *because)))


def _sentence(finding: Finding) -> str:
    return f"{finding.source}{' of ' + finding.machine if finding.machine else ''}: {finding.what}"
