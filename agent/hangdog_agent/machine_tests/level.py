"""What a level of the ladder is, and what it finds: three outcomes, each with evidence, and whom it convicts."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hangdog_agent.machine_tests.members import Ran


class LevelOutcome(StrEnum):
    """How a test came out. There is no `healthy`: a pass says that this test, so often repeated, convicted nobody."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"  # it could not run, did not answer, or what it found fits more than one cause


class PartKind(StrEnum):
    """Whom a failed test convicts. Only the first two are reasons to take this machine out."""

    MACHINE = "machine"
    DEVICE = "device"
    LINK = "link"  # between the two that are named; either end may be sound, so nobody is evicted for it
    GROUP = "group"  # one of those named, or what joins them; another grouping tells


@dataclass(frozen=True, slots=True)
class MachineConviction:
    """One part that failed: a device by its name (`cuda:3`), a link or a group by the names of its ends."""

    sort: PartKind
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LevelResult:
    """What one test of a level found. Only a failed one convicts; whom, is empty where it cannot tell.

    `digests` by item may be compared with those of other machines under the same `key`, never across keys. `measures` are
    in the units that their names end with. `repetitions` counts how often the test was repeated, `seconds` what it took.
    """

    level: int
    test: str
    outcome: LevelOutcome
    message: str
    convicts: tuple[MachineConviction, ...] = ()
    evidence: tuple[str, ...] = ()
    measures: Mapping[str, float] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    repetitions: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.convicts and self.outcome is not LevelOutcome.FAIL:
            raise ValueError(f"{self.test}: a test that did not fail convicts nobody")


def contained(level: int, ran: Ran) -> tuple[LevelResult, ...]:
    """What a level tells of its processes beside what they found: that some were left behind, or cannot be killed."""
    return tuple(LevelResult(level, "containment", LevelOutcome.INCONCLUSIVE, each) for each in ran.remarks)


class Level(Protocol):
    """One level; its number orders the ladder by cost and by what it can see."""

    @property
    def number(self) -> int:
        """Its place on the ladder."""

    @property
    def name(self) -> str:
        """What it tests, in a few words."""

    @property
    def deadline_s(self) -> float:
        """Seconds after which all of it is ended, whatever the budget."""

    def supported(self) -> str:
        """Why it has nothing to test here; empty when it has."""

    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        """Runs for at most `deadline_s` seconds, and ends early once `stop` is set; never raises."""
