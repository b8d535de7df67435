"""What it tells that data of trainers stays unacknowledged: their network lost it or a machine is gone, and no code did it."""

import ipaddress
from collections.abc import Sequence

from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis, odds
from hangdog_models.findings import Finding, Impact
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.verdict import Kind

UNACKNOWLEDGED_BY_CODE = likelihood("unacknowledged_by_code")
UNACKNOWLEDGED_BY_CODE_OF_ONE = likelihood("unacknowledged_by_code_of_one")
UNACKNOWLEDGED = likelihood("unacknowledged")
UNACKNOWLEDGED_OF_ONE = likelihood("unacknowledged_of_one")
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
    against = Factor(
        "what trainers sent stays unacknowledged, which no code does",
        UNACKNOWLEDGED_BY_CODE if several else UNACKNOWLEDGED_BY_CODE_OF_ONE,
    )
    moved = [one.moved(against) if one.kind is Kind.SOFTWARE else one for one in found]
    if any(one.kind is Kind.GROUP for one in found):
        return tuple(one.with_reasons(*because) if one.kind is Kind.GROUP else one for one in moved)
    network = odds("what trainers sent stays unacknowledged", UNACKNOWLEDGED if several else UNACKNOWLEDGED_OF_ONE)
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
