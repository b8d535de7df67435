"""What it tells that data of trainers stays unacknowledged: their network lost it or a machine is gone, and no code did it."""

import ipaddress
from collections.abc import Sequence

from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis, odds
from hangdog_models.findings import Finding, Impact
from hangdog_models.verdict import Kind

#: What is left of the code where several machines tell of it, and where one does: a process that hangs still acknowledges,
#: for its kernel does. Not nothing, for a connection that the collectives do not use may be lost beside a bug.
NOT_BY_CODE, BY_ONE = 0.05, 0.3
#: Odds of the network where nothing else speaks for it, by several and by one: as of any path that is named by whoever suffers
#: from it. A machine that answers nobody is likelier by far (its neighbours see the same).
BY_NETWORK, BY_NETWORK_OF_ONE = 12.0, 3.0
_BETWEEN = (
    "what machines of the job send each other is not acknowledged: their network loses it, or one of them is gone"
)
#: Connections that a verdict tells of.
_SHOWN = 3


def weighed(found: Sequence[Hypothesis], findings: Sequence[Finding]) -> tuple[Hypothesis, ...]:
    """The explanations as they are beside what was sent and not acknowledged; which end is at fault it does not tell."""
    reported = _of_the_job([finding for finding in findings if finding.impact is Impact.UNACKNOWLEDGED])
    if not reported:
        return tuple(found)
    several = len({finding.machine for finding in reported}) > 1
    because = tuple(dict.fromkeys(_sentence(finding) for finding in reported))[:_SHOWN]
    against = Factor("what trainers sent stays unacknowledged, which no code does", NOT_BY_CODE if several else BY_ONE)
    moved = [one.moved(against) if one.kind is Kind.SOFTWARE else one for one in found]
    if any(one.kind is Kind.GROUP for one in found):
        return tuple(one.with_reasons(*because) if one.kind is Kind.GROUP else one for one in moved)
    network = odds("what trainers sent stays unacknowledged", BY_NETWORK if several else BY_NETWORK_OF_ONE)
    return (*moved, Hypothesis(Kind.GROUP, network, reasons=(_BETWEEN, *because)))


def _of_the_job(reported: Sequence[Finding]) -> Sequence[Finding]:
    """Those that may be about machines of the job: an address of the Internet is rather a service that a trainer reports to.

    Where a cluster's own addresses are of the Internet, several machines tell of several.
    """
    if len({finding.machine for finding in reported}) > 1 and len({finding.device for finding in reported}) > 1:
        return reported
    return [finding for finding in reported if not _global(finding.device)]


def _global(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return True


def _sentence(finding: Finding) -> str:
    return f"{finding.source}{' of ' + finding.machine if finding.machine else ''}: {finding.what}"
