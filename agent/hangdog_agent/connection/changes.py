"""What of signs and findings is news to a server: not the seconds that pass, nor how often and when, which heartbeats tell."""

from collections.abc import Sequence

from hangdog_models.findings import Finding
from hangdog_proto.codec.stall_signs import StallSigns


def comparable_signs(signs: StallSigns) -> object:
    """What signs say, apart from the seconds that pass."""
    return {job: {rank: (sign.doing, sign.overdue) for rank, sign in shown.items()} for job, shown in signs.items()}


def findings_named(findings: Sequence[Finding]) -> object:
    """What findings say, apart from how often and when."""
    return {(finding.source, finding.code, finding.impact, finding.device) for finding in findings}
