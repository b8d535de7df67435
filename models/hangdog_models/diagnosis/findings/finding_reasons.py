"""The reason that a finding is: its code, by what the finding means, and for a few by its own name."""

from collections.abc import Mapping

from hangdog_models.findings import Finding, Impact
from hangdog_models.verdict import VerdictReason

#: Findings that programs look for by name, however grave they are.
_NAMED_CODES: Mapping[str, str] = {
    "killed": "killed",
    "ended without a word": "killed",
    "out of memory": "out-of-memory",
    "host out of memory": "out-of-memory",
    "collective sizes differ": "operations-refused",
    "NCCL refuses an operation": "operations-refused",
    "mismatched collectives": "operations-differ",
    "collectives differ": "operations-differ",
    "NCCL failed": "nccl-failed",
}
_IMPACT_CODES: Mapping[Impact, str] = {
    Impact.CONVICTS: "hardware-broken",
    Impact.RESET: "device-needs-reset",
    Impact.SUSPECTS: "hardware-suspect",
    Impact.SLOWS: "hardware-slows",
    Impact.PATH: "path-fails",
    Impact.UNACKNOWLEDGED: "data-unacknowledged",
    Impact.PROGRAM: "program-error",
    Impact.NUMBERS: "wrong-numbers-reported",
    Impact.SERVICE: "service-fails",
    Impact.VICTIM: "victim-of-others",
    Impact.TELLS_NOTHING: "nothing-reported",
}


def reason_of(finding: Finding, text: str) -> VerdictReason:
    """The reason that states this finding in these words."""
    if finding.code.startswith("Xid "):
        return VerdictReason("xid", text)
    return VerdictReason(_NAMED_CODES.get(finding.code) or _IMPACT_CODES[finding.impact], text)
