"""Unacknowledged TCP data of trainers: their network lost it or a machine is gone, and no code did it."""

import ipaddress
from collections.abc import Sequence

from hangdog_models.diagnosis.findings.finding_reasons import reason_of
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis, odds
from hangdog_models.findings import Finding, Impact
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.verdict import Kind, VerdictReason

UNACKNOWLEDGED_BY_CODE = likelihood("unacknowledged_by_code")
UNACKNOWLEDGED_BY_CODE_OF_ONE = likelihood("unacknowledged_by_code_of_one")
UNACKNOWLEDGED = likelihood("unacknowledged")
UNACKNOWLEDGED_OF_ONE = likelihood("unacknowledged_of_one")
_BETWEEN = VerdictReason(
    "data-unacknowledged",
    "what machines of the job send each other is not acknowledged: their network loses it, or one of them is gone",
)
#: Connections that a verdict shows.
_SHOWN = 3


def weighed(found: Sequence[Hypothesis], findings: Sequence[Finding]) -> tuple[Hypothesis, ...]:
    """The hypotheses, with what unacknowledged data says. It does not show which end is at fault."""
    reported = _of_the_job([finding for finding in findings if finding.impact is Impact.UNACKNOWLEDGED])
    if not reported:
        return tuple(found)
    several = len({finding.machine for finding in reported}) > 1
    because = tuple(dict.fromkeys(_reason(finding) for finding in reported))[:_SHOWN]
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
    """Those that may be between machines of the job. An address of the Internet is rather an outside service.

    Some clusters have addresses of the Internet: there several machines report several of them.
    """
    if len({finding.machine for finding in reported}) > 1 and len({finding.device for finding in reported}) > 1:
        return reported
    return [finding for finding in reported if not _global(finding.device)]


def _global(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return True


def _reason(finding: Finding) -> VerdictReason:
    return reason_of(finding, f"{finding.source}{' of ' + finding.machine if finding.machine else ''}: {finding.what}")
