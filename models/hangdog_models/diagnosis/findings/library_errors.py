"""Errors that NCCL itself reports, in a log or in RAS: operations that differ between ranks, or failed on one."""

from collections.abc import Mapping, Sequence

from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.findings.finding_reasons import reason_of
from hangdog_models.diagnosis.findings.job_hosts import of_the_job
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis, odds
from hangdog_models.diagnosis.rank_words import are, ranks_of
from hangdog_models.diagnosis.waits import ras_waits
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, VerdictReason

OPERATIONS_REFUSED = likelihood("operations_refused")
NCCL_FAILED = likelihood("nccl_failed")
RAS = "NCCL RAS"
#: Codes of findings by which NCCL reports that received data do not fit their operation.
SIZES_DIFFER, REFUSES = "collective sizes differ", "NCCL refuses an operation"
REFUSED = (SIZES_DIFFER, REFUSES)
FAILED = "NCCL failed"
#: What an error means as RAS writes it, with the code that logs have for it.
_MEANINGS: Mapping[str, tuple[str, Impact, str]] = {
    "Invalid usage": (REFUSES, Impact.PROGRAM, "what NCCL was told or sent here does not fit its operation"),
    "Invalid argument": (REFUSES, Impact.PROGRAM, "what NCCL was told or sent here does not fit its operation"),
    "Remote process error": ("NCCL remote error", Impact.VICTIM, "another rank or the network failed"),
    "System error": ("NCCL system error", Impact.VICTIM, "a connection failed below NCCL"),
    "Internal error": (FAILED, Impact.TELLS_NOTHING, "a call inside NCCL failed; its cause stands elsewhere"),
    "Unhandled CUDA error": (FAILED, Impact.TELLS_NOTHING, "a CUDA call failed; its cause stands in the log of this rank"),
}  # fmt: skip
_CODE = VerdictReason(
    "operations-refused",
    "operations that do not fit each other, or settings that differ between ranks, are the program's: no link does that",
)
#: Findings that are quoted.
_QUOTED = 2


def reported_by_ras(snapshot: Snapshot, topology: Topology) -> tuple[Finding, ...]:
    """The errors that members reported in the last RAS report, as findings of their ranks."""
    if not snapshot.ras:
        return ()
    places = ras_waits.Places(snapshot, topology)
    found: dict[tuple[Rank, str], Finding] = {}
    for communicator in snapshot.ras[-1].communicators:
        for member in communicator.members:
            rank = places.rank(member, communicator) if member.error in _MEANINGS else None
            if rank is not None:
                code, impact, what = _MEANINGS[member.error]
                quoted = f"{what} ({member.error.lower()})"
                found.setdefault((rank, code), Finding(RAS, code, impact, quoted, rank=rank))
    return tuple(found.values())


def explain(snapshot: Snapshot, clusters: Sequence[Cluster], topology: Topology) -> list[Hypothesis]:
    """That the program runs different operations; else the one rank on which NCCL failed, whose cause stays open."""
    findings = of_the_job(snapshot.findings, topology)
    # a changed impact means that another rank's end is the cause
    refused = sorted((one for one in findings if one.code in REFUSED and one.impact is Impact.PROGRAM), key=_order)
    if refused:
        return [_mismatch(refused, clusters, topology)]
    failed = {one.rank for one in findings if (one.source, one.code) == (RAS, FAILED)}
    rank = failed.pop() if len(failed) == 1 else None
    if rank is None:
        return []
    (one,) = (one for one in findings if (one.source, one.code, one.rank) == (RAS, FAILED, rank))
    reason = reason_of(one, f"{RAS} of rank {rank}: {one.what}")
    unit = topology.machine(rank) or f"rank {rank}"
    return [Hypothesis(Kind.UNDETERMINED, odds(reason.text, NCCL_FAILED), (rank,), (unit,), (reason,))]


def _mismatch(refused: Sequence[Finding], clusters: Sequence[Cluster], topology: Topology) -> Hypothesis:
    """The rank that reports it need not be the cause: named are the few that are elsewhere than all their peers."""
    by = {one.rank for one in refused if one.rank is not None}
    odd = _apart(by, clusters, topology)
    quotes = (
        reason_of(one, f"{one.source}{'' if one.rank is None else f' of rank {one.rank}'}: {one.what}")
        for one in refused
    )
    reasons = (*tuple(dict.fromkeys(quotes))[:_QUOTED], _CODE)
    if odd:
        text = f"{ranks_of(odd)} {are(odd)} elsewhere in the program than all others: look there first"
        reasons += (VerdictReason("elsewhere-in-program", text),)
    units = tuple(dict.fromkeys(topology.machine(rank) or f"rank {rank}" for rank in odd))
    factors = odds(
        "the library of collectives itself reports that operations do not fit each other", OPERATIONS_REFUSED
    )
    return Hypothesis(Kind.SOFTWARE, factors, odd, units, reasons)


def _apart(by: set[Rank], clusters: Sequence[Cluster], topology: Topology) -> tuple[Rank, ...]:
    """The few at another call site than all others of the reporting ranks' pipeline stages, which run one program."""
    stages = {rank: stage for group in topology.groups.get("pp", ()) for stage, rank in enumerate(group)}
    of = {stages.get(rank, 0) for rank in by}
    found = [
        [rank for rank in one.ranks if not of or stages.get(rank, 0) in of] for one in clusters if one.sample.frames
    ]
    places = sorted((ranks for ranks in found if ranks), key=len)
    few = len(places) == 2 and 2 * len(places[0]) < len(places[1])
    return tuple(sorted(places[0])) if few else ()


def _order(finding: Finding) -> tuple[bool, int, str]:
    """The sort key: a log quotes the sizes, so it comes before RAS."""
    return finding.source == RAS, -1 if finding.rank is None else finding.rank, repr(finding)
