"""Restarts one after the other, as a history tells them: those that `hangdog run` made by itself, and those of people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hangdog_models.recovery.recovery_history import (
    Began,
    Entry,
    Finished,
    OutageOpened,
    RecoveryRung,
    Steady,
    Stepped,
    Troubled,
)


class ChainEnd(StrEnum):
    """How a chain ended."""

    TRAINS = "trains again"  # for as long as the ladder calls steady, or to its end
    FAILED = "failed"  # a person was called; a person's own restart: it failed again
    OPEN = "not decided"  # the history ends, or its supervisor did


@dataclass(frozen=True, slots=True)
class Chain:
    """Restarts upon one failure: the moments (Unix seconds) of each, by hangdog or by a person, who makes one at a time."""

    at: float
    manual: bool
    restarts: tuple[float, ...] = ()
    end: ChainEnd = ChainEnd.OPEN

    def intervals(self) -> tuple[float, ...]:
        """Seconds between one restart and the next."""
        return tuple(max(0.0, later - one) for one, later in zip(self.restarts, self.restarts[1:], strict=False))


@dataclass(slots=True)
class _Walk:
    found: list[Chain] = field(default_factory=list)
    now: Chain | None = None
    opened: bool = False
    returned: bool = False  # a person began again, and the job is not started yet

    def end(self, how: ChainEnd) -> None:
        """The chain is over; one without a restart is none."""
        if self.now is not None and self.now.restarts:
            self.found.append(replace(self.now, end=how))
        self.now = None


def chains(history: Sequence[Entry]) -> tuple[Chain, ...]:
    """All chains of a history, in order. A restart that brings an update in, upon no failure, is none."""
    walk = _Walk()
    for entry in history:
        match entry:
            case OutageOpened():
                walk.end(ChainEnd.OPEN)
                walk.returned, walk.opened = walk.opened, True
            case Troubled():
                if walk.now is not None and walk.now.manual:
                    walk.end(ChainEnd.FAILED)
                walk.now = walk.now or Chain(entry.at, manual=False)
            case Began() if walk.returned:
                walk.now, walk.returned = Chain(entry.at, manual=True, restarts=(entry.at,)), False
            case Began() if walk.now is not None and not walk.now.manual:
                walk.now = replace(walk.now, restarts=(*walk.now.restarts, entry.at))
            case Stepped() if entry.step.act is RecoveryRung.HUMAN:
                walk.end(ChainEnd.FAILED)
            case Steady() | Finished():
                walk.end(ChainEnd.TRAINS)
            case _:
                pass
    walk.end(ChainEnd.OPEN)
    return tuple(walk.found)


def ends(found: Iterable[Chain]) -> dict[str, int]:
    """How many chains ended how."""
    listed = [one.end for one in found]
    return {str(end): listed.count(end) for end in ChainEnd}
