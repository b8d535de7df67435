"""Failing paths between machines, as logs report them: one end that several have in common, a pair, or a network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hangdog_models.counts import counted, named
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.findings import Finding, Impact
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, VerdictReason

ENDS_ACCUSED = likelihood("ends_accused")
ACCUSED_BY_TWO = likelihood("accused_by_two")
ACCUSERS_SEVERAL = likelihood("accusers_several")
ACCUSED_SHARE = likelihood("accused_share")
#: The dimension of a path between machines: it has two ends and no process group.
PATH = "path"
#: What speaks of a path: its errors, and data on it that nobody acknowledges.
_OF_A_PATH = (Impact.PATH, Impact.UNACKNOWLEDGED)
#: Codes by which a machine reports that its own network card or port fails.
_OWN_NETWORK = ("IB port event", "link down", "network card", "network module")


@dataclass(slots=True)
class _Paths:
    """The other ends of each end's failing paths, which machines accuse which, and the findings by pair."""

    other_ends: dict[str, set[str]] = field(default_factory=dict)
    accusers: dict[str, set[str]] = field(default_factory=dict)
    stated: dict[frozenset[str], list[Finding]] = field(default_factory=dict)

    def add(self, reporter: str, peer: str, finding: Finding) -> None:
        self.other_ends.setdefault(reporter, set()).add(peer)
        self.other_ends.setdefault(peer, set()).add(reporter)
        self.accusers.setdefault(peer, set()).add(reporter)
        self.stated.setdefault(frozenset((reporter, peer)), []).append(finding)


def explain(findings: Sequence[Finding], topology: Topology) -> tuple[list[Hypothesis], list[Finding]]:
    """Hypotheses where more than one pair of machines is reported, and the findings that are left to other hypotheses.

    If a single machine of the job does not report, and a single address is of no known machine, the address is its own.
    """
    findings = _with_peers(findings, topology)
    paths, used = _paths(findings, topology)
    end = _common_end(paths) if len(paths.stated) > 1 else None
    if end is None:  # what is not acknowledged speaks for the network as a whole: tcp_retransmits.py
        paths, used = _paths([finding for finding in findings if finding.impact is Impact.PATH], topology)
    rest = [finding for finding in findings if id(finding) not in used]
    if end is None:
        return ([_network(paths, topology)], rest) if len(paths.stated) > 1 else ([], findings)
    others = [one for pair, one in paths.stated.items() if end not in pair]
    return [_accused(end, paths, findings, topology)], [*rest, *(finding for one in others for finding in one)]


def _with_peers(findings: Sequence[Finding], topology: Topology) -> list[Finding]:
    """The findings with the machine of each peer, where only one machine can have its address."""
    reports = [finding for finding in findings if finding.impact is Impact.PATH and finding.peers]
    reporters = {_reporter(finding, topology) for finding in reports}
    silent = [machine for machine in topology.machines if machine not in reporters]
    unknown = {finding.peers for finding in reports if not any(peer in topology.machines for peer in finding.peers)}
    if not reporters or len(silent) != 1 or len(unknown) != 1:
        return list(findings)
    (peers,) = unknown
    return [replace(f, peers=(silent[0], *peers)) if f.peers == peers else f for f in findings]


def _paths(findings: Sequence[Finding], topology: Topology) -> tuple[_Paths, set[int]]:
    paths: _Paths = _Paths()
    used: set[int] = set()
    for finding in findings:
        if finding.impact in _OF_A_PATH and finding.peers:
            reporter = _reporter(finding, topology)
            peer = next((peer for peer in finding.peers if peer in topology.machines), finding.peers[0])
            if reporter and peer != reporter:
                paths.add(reporter, peer, finding)
                used.add(id(finding))
    return paths, used


def _reporter(finding: Finding, topology: Topology) -> str:
    if finding.machine or finding.rank is None:
        return finding.machine
    return topology.machine(finding.rank) or f"rank {finding.rank}"


def _common_end(paths: _Paths) -> str | None:
    """The end that is in nearly all failing paths and that others accuse; None where there is no such one."""
    most = max(sorted(paths.other_ends), key=lambda end: len(paths.other_ends[end]))
    degree, accusers = len(paths.other_ends[most]), len(paths.accusers.get(most, ()))
    alone = degree == len(paths.stated)
    itself = any(most in reporters for reporters in paths.accusers.values())
    if accusers < 2 and not (alone and accusers and itself):
        return None  # many reports of one machine are one source
    return most if alone or (degree >= ACCUSERS_SEVERAL and degree >= ACCUSED_SHARE * len(paths.stated)) else None


def _accused(end: str, paths: _Paths, findings: Sequence[Finding], topology: Topology) -> Hypothesis:
    accusers = paths.accusers[end]
    odds = ENDS_ACCUSED if len(accusers) >= ACCUSERS_SEVERAL else ACCUSED_BY_TWO
    lead = next(one for pair, one in paths.stated.items() if end in pair)[0]
    of_it = f"{counted(len(accusers), 'machine')} ({named(accusers)}) report of {end} alike"
    if len(accusers) < 2:
        of_it = f"{named(accusers)} reports of {end}, and {end} of another machine"
    because = f"{of_it}: {lead.code}: {lead.what}"
    reason, ranks = VerdictReason("accused-by-several", because), topology.machines.get(end, ())
    factors = (Factor(f"{counted(len(accusers), 'machine')} report of one and the same peer", odds),)
    own = any(finding.machine == end and finding.code in _OWN_NETWORK for finding in findings)
    return Hypothesis(Kind.MACHINE, factors, tuple(ranks), (end,), (reason,), hearsay=not own)


def _network(paths: _Paths, topology: Topology) -> Hypothesis:
    """Many paths fail without a common end: whatever the cause, most of these machines are sound."""
    ends = tuple(sorted(paths.other_ends))
    stated: Mapping[frozenset[str], Sequence[Finding]] = paths.stated
    lead = next(iter(stated.values()))[0]
    because = f"{counted(len(stated), 'path')} between {counted(len(ends), 'machine')} fail, with no end in common: {lead.code}: {lead.what}"
    ranks = tuple(rank for end in ends for rank in topology.machines.get(end, ()))
    hold = GroupWait(PATH, ranks, (), lead.what) if len(ranks) > 1 else None
    reason = VerdictReason("paths-without-common-end", because)
    return Hypothesis(
        Kind.GROUP, (Factor("paths without a common end fail", ENDS_ACCUSED),), ranks, ends, (reason,), hold
    )
