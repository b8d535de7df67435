"""The verdict that a machine's checks requested: on that machine, whether or not a job runs there."""

from dataclasses import replace

from hangdog_models.findings import Impact
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import MachineCheck

#: Impacts against the machine itself, the gravest first.
AGAINST = (Impact.CONVICTS, Impact.RESET, Impact.SUSPECTS)
#: Codes that are shown; all of them are among the findings.
MOST = 4


def placed(snapshot: Snapshot, topology: Topology) -> Topology:
    """The layout with the machine that was checked. Without a job it is the only machine."""
    if not snapshot.checked or topology.machines:
        return topology
    return replace(topology, machines={snapshot.checked: ()})


def check_of(snapshot: Snapshot) -> MachineCheck | None:
    """What the checks found; None if no check requested a verdict."""
    if not snapshot.checked:
        return None
    own = [one for one in snapshot.findings if one.machine == snapshot.checked and one.impact in AGAINST]
    own.sort(key=lambda one: (AGAINST.index(one.impact), one.code))
    return MachineCheck(snapshot.checked, tuple(dict.fromkeys(one.code for one in own))[:MOST])
