"""Findings with the job's own names of machines, without machines that are not in the job."""

from collections.abc import Sequence
from dataclasses import replace

from hangdog_models.findings import CLUSTER_WIDE, Finding, Impact
from hangdog_models.topology import Topology


def of_the_job(findings: Sequence[Finding], topology: Topology) -> list[Finding]:
    """The findings of the job. A cluster-wide report on a machine outside of it does not count."""
    found = []
    for finding in findings:
        machine = topology.machine_called(finding.machine) if finding.machine else None
        if machine is None and finding.machine and topology.machines and finding.source in CLUSTER_WIDE:
            continue
        peers = tuple(
            dict.fromkeys(
                topology.machine_called(peer) or peer for peer in finding.peers or _far_end(finding, topology)
            )
        )
        if (machine or finding.machine, peers) != (finding.machine, finding.peers):
            finding = replace(finding, machine=machine or finding.machine, peers=peers)
        found.append(finding)
    return found


def _far_end(finding: Finding, topology: Topology) -> tuple[str, ...]:
    """The machine of the other rank of a path that is given by its two ranks; empty if both are on one machine."""
    if finding.impact is not Impact.PATH or finding.machine or finding.rank is None or len(finding.ranks) != 2:
        return ()
    near, far = (topology.machine(rank) or f"rank {rank}" for rank in finding.ranks)
    return () if near == far else (far,)
