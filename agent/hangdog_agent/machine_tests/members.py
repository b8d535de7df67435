"""The processes of a test: what is run, how each ended, and what is told of it."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hangdog_models.counts import counted
from hangdog_models.reading.printable import printable


class MemberEnd(StrEnum):
    """How a member ended."""

    ITSELF = "itself"  # by its own exit or by a signal: see `status`
    DEADLINE = "deadline"  # it did not answer in time, killed
    WITH_THE_OTHERS = "with the others"  # killed, after another one had failed
    FLOODED = "flooded"  # it said more than anybody wants to read, killed
    NOT_STARTED = "not started"
    ABANDONED = "abandoned"  # nobody wanted to know any more, killed


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One process to run; `environ` is all of its environment. Of what a chatty one says the last words are kept."""

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    chatty: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a member ended and what it said. `status` below zero is a signal; `state` is its kernel state at the deadline."""

    name: str
    how: MemberEnd
    status: int | None = None
    state: str = ""
    seconds: float = 0.0
    stdout: str = ""
    stderr: str = ""
    why: str = ""

    @property
    def well(self) -> bool:
        return self.how is MemberEnd.ITSELF and self.status == 0

    @property
    def stopped(self) -> bool:
        """Whether somebody had stopped it (SIGSTOP, a tracer) when the time was up."""
        return self.state[:1] in ("T", "t")

    def last(self, count: int) -> tuple[str, ...]:
        """The last lines that it said on stderr, empty ones apart."""
        return tuple(line for line in self.stderr.splitlines() if line.strip())[-count:]

    @property
    def words(self) -> str:
        """In a few words for people, with what it said last."""
        last = "".join(self.last(1))
        stated = f': "{printable(last, 160)}"' if last else ""
        if self.how is MemberEnd.DEADLINE:
            letter = f", in state {self.state}" if self.state else ""
            return f"{self.name} did not answer within {self.seconds:.0f} s{letter}"
        if self.how is MemberEnd.ITSELF and self.status is not None and self.status < 0:
            return f"{self.name} was ended by {_signal(-self.status)}{stated}"
        if self.how is MemberEnd.ITSELF:
            return f"{self.name} ended with status {self.status}{stated}"
        return f"{self.name}: {self.how}{f', {self.why}' if self.why else ''}"


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a run. `left`: processes that not even SIGKILL ended; `strays`: those that members had left behind."""

    members: tuple[Ended, ...]
    seconds: float
    left: tuple[int, ...] = ()
    strays: int = 0

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is worth telling beside the members: that a test left something behind, or could not be ended."""
        reported = [f"left behind, and ended: {counted(self.strays, 'process', 'processes')}"] if self.strays else []
        pids = ", ".join(map(str, self.left))
        return (
            (*reported, f"processes that cannot be killed: {pids} (the kernel holds them)")
            if self.left
            else tuple(reported)
        )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
