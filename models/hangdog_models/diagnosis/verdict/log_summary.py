"""What logs and tools report where there are no stacks and nothing decides, as the one sentence worth reading first."""

from collections.abc import Sequence

from hangdog_models.counts import counted
from hangdog_models.diagnosis.findings.finding_reasons import reason_of
from hangdog_models.diagnosis.findings.job_hosts import of_the_job
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import VerdictReason

#: Codes of how the job ended: they come before what some rank suffered on the way.
_ENDINGS = (
    "node failure somewhere", "preempted", "time limit", "killed", "ended without a word", "worker vanished", "first observed failure", "cancelled", "monitored barrier",
    "stall inspector", "flight recorder analysis", "JAX coordination", "XLA rendezvous", "launcher lost a daemon", "peer process ended",
    "not heard at start-up", "store barrier, ranks missing", "store time-out",
)  # fmt: skip
#: The most telling impact first; those left out decide by themselves.
_ORDER = (
    Impact.CONVICTS, Impact.RESET, Impact.SUSPECTS, Impact.SLOWS, Impact.PROGRAM, Impact.NUMBERS, Impact.SERVICE,
    Impact.PATH, Impact.UNACKNOWLEDGED, Impact.VICTIM, Impact.TELLS_NOTHING,
)  # fmt: skip


def lead(snapshot: Snapshot, topology: Topology) -> VerdictReason:
    """The reason that sums up what was read; it blames no machine."""
    findings = of_the_job(snapshot.findings, topology)
    if not findings:
        text = "nothing that could be read names a fault of the job or of its machines"
        return VerdictReason("nothing-reported", text)
    first = min(findings, key=_rank_of)
    alike = [one for one in findings if (one.code, one.impact) == (first.code, first.impact)]
    sentence = f"{_whose(first, alike)}: {first.what}"
    if first.impact is Impact.TELLS_NOTHING:
        return reason_of(first, f"nothing that was read speaks against a machine; {sentence}")
    if first.impact is Impact.VICTIM:
        return reason_of(first, f"the logs name no culprit; {sentence}")
    return reason_of(first, f"what was read does not decide; {sentence}")


def _rank_of(finding: Finding) -> tuple[int, int, float, bool, str]:
    """The sort key: the most telling first. Among equals the text decides, so arrival does not matter."""
    ending = _ENDINGS.index(finding.code) if finding.code in _ENDINGS else len(_ENDINGS)
    nameless = finding.rank is None and not finding.machine
    return _ORDER.index(finding.impact), ending, finding.at_s or 0.0, nameless, repr(finding)


def _whose(first: Finding, alike: Sequence[Finding]) -> str:
    ranks: list[Rank] = sorted({one.rank for one in alike if one.rank is not None})
    machines = {one.machine for one in alike if one.machine}
    if first.rank is not None:
        of = ranks_of(ranks) if len(ranks) <= 8 else counted(len(ranks), "rank")
    elif first.machine:
        of = first.machine if len(machines) == 1 else f"{first.machine} and {len(machines) - 1} more"
    else:
        return first.source
    return f"{first.source} of {of}"
