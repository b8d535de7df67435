"""A machine as it is now, and in which states that is; it may be in several."""

from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.machine_history import MachineRecord


class MachineCondition(StrEnum):
    """What somebody looks for in a list of machines."""

    SUSPECTED = "suspected"  # a verdict of a day speaks against it, and nobody took that back
    CONVICTED = "convicted"  # a verdict or a test convicted it, whenever that was, and nobody took that back
    ISOLATED = "isolated"  # a mark of ours stands
    FINDINGS = "findings"  # its checks found something
    CONNECTED = "connected"
    SILENT = "silent"  # connected, and gives no sign of life
    LOST = "lost"
    STOPPED = "stopped"  # its agent said that it ends
    ABSENT = "absent"  # known by its history alone


@dataclass(frozen=True, slots=True)
class MachineNow:
    """A machine as it is, and as verdicts of all jobs saw it. `silent_s`: seconds since its agent spoke, None: never here.

    `state` is what is decided about it now, in a few words; empty where nothing is. `states` are MachineConditions.
    """

    name: str
    connected: bool
    silent_s: float | None
    version: str
    jobs: tuple[str, ...]
    findings: tuple[str, ...]
    convicted: int = 0
    suspected: int = 0
    cleared: int = 0
    weight: float = 0.0
    last: float = 0.0
    state: str = ""
    states: tuple[str, ...] = ()


def states_of(
    here: MachineCondition, record: MachineRecord, accused: bool, marked: bool, found: bool
) -> tuple[str, ...]:
    """In which states a machine is, those first that somebody has to see to; `here` is how its agent is."""
    asked = (
        (MachineCondition.SUSPECTED, accused),
        (MachineCondition.CONVICTED, record.convicted > 0),
        (MachineCondition.ISOLATED, marked),
        (MachineCondition.FINDINGS, found),
    )
    return (*(str(state) for state, so in asked if so), str(here))


def badness(machine: MachineNow) -> tuple[object, ...]:
    """By this order the machines come first that somebody has to see to."""
    suspected = MachineCondition.SUSPECTED in machine.states
    return (
        not suspected, -machine.convicted, -machine.weight, not machine.findings, machine.connected, machine.name,
    )  # fmt: skip
