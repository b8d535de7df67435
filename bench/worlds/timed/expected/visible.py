"""By which evidence somebody who reads a bundle can tell a guilty rank from the others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position
from worlds.timed.evidence.bundle import Written
from worlds.timed.evidence.plan import ENDED, Failure
from worlds.timed.incident import Incident

#: Nobody calls a job stuck by one look that had stood for less.
_STANDS_S = 120.0


class Sign(StrEnum):
    """A kind of evidence that tells a rank apart."""

    STACK = "it alone is outside any wait"
    PROCESS = "its process is stopped, blocked in the kernel or has ended"
    RECORDER = "its flight recorder is behind or beside those of its peers"
    FAILURE = "it could not be captured, for a reason that is a fault"
    KERNEL_LOG = "its machine's kernel log tells of the fault"


@dataclass(frozen=True)
class Visible:
    """An incident, and what its bundle shows of it."""

    incident: Incident
    written: Written

    @cached_property
    def signs(self) -> Mapping[Rank, frozenset[Sign]]:
        """Of each guilty rank, by what it can be told."""
        tests: dict[Sign, Callable[[Rank], bool]] = {
            Sign.STACK: self._stands_out,
            Sign.PROCESS: self._process_tells,
            Sign.RECORDER: self._behind,
            Sign.FAILURE: self._failure_tells,
            Sign.KERNEL_LOG: lambda rank: self.incident.layout.machine(rank) in self.written.shows,
        }
        return {rank: frozenset(sign for sign, holds in tests.items() if holds(rank)) for rank in self.guilty}

    @property
    def guilty(self) -> Sequence[Rank]:
        return self.incident.scene.ranks

    @property
    def told(self) -> list[Rank]:
        """The guilty ranks that something tells apart."""
        return [rank for rank in self.guilty if self.signs[rank]]

    @property
    def sure(self) -> list[Rank]:
        """Those that more than a stack or a recorder tells apart: a state, a log, a reason that is a fault by itself."""
        return [rank for rank in self.guilty if self._is_sure(rank)]

    @property
    def stands(self) -> bool:
        """Whether the bundle shows that the job stands: by several looks, by what the collector says, or by a sure sign."""
        said = self.written.plan.stalled and self.incident.stalled_s >= _STANDS_S
        return len(self.incident.looks) > 1 or said or bool(self.sure)

    def has(self, rank: Rank, *signs: Sign) -> bool:
        return bool(self.signs[rank].intersection(signs))

    def captured(self, rank: Rank) -> bool:
        return rank not in self.written.plan.failures

    def mismatched(self, rank: Rank) -> bool:
        """Whether a rank's oldest unfinished collective is another one than its peers'."""
        return any(self._other(rank, of) for of in self.written.dumped.values())

    def _is_sure(self, rank: Rank) -> bool:
        failed = self.has(rank, Sign.FAILURE) and self.written.plan.failures[rank] is not Failure.NOT_STOPPED
        return failed or self.has(rank, Sign.PROCESS, Sign.KERNEL_LOG)

    def _stands_out(self, rank: Rank) -> bool:
        at = self.incident.seen(rank)
        if not self.captured(rank) or at is None or at.waits:
            return False
        others = [other for other in self.incident.layout.ranks if other not in self.guilty]
        places = [place for other in others if (place := self.incident.seen(other)) is not None]
        busy = [place for other in others if self.captured(other) and (place := self._busy(other)) is not None]
        alike = any((place.frames, place.native) == (at.frames, at.native) for place in places)
        return not alike and len(busy) <= max(1, len(others) // 8)

    def _busy(self, rank: Rank) -> Position | None:
        at = self.incident.seen(rank)
        return None if at is None or at.waits else at

    def _process_tells(self, rank: Rank) -> bool:
        at, host = self.incident.seen(rank), self.incident.host(rank)
        if not self.written.plan.processes or at is None or self.incident.frozen(rank):
            return False
        ended = host.dead is not None and self.written.plan.failures.get(rank) is Failure.ZOMBIE
        return host.stopped is not None or at.state == "D" or ended

    def _failure_tells(self, rank: Rank) -> bool:
        failures = self.written.plan.failures
        if failures.get(rank) is Failure.NOT_STOPPED:  # alone it tells; beside failures of others it does not
            return all(other in self.guilty for other in failures)
        return failures.get(rank) in (*ENDED, Failure.UNREACHABLE)

    def _behind(self, rank: Rank) -> bool:
        for of in self.written.dumped.values():
            others = [numbers for other, numbers in of.items() if other != rank]
            if rank not in of or not others:
                continue
            newest = max(of[rank])
            if newest < min(map(max, others)) or self._waits_alone(rank, of, newest):
                return True
            oldest = next((number for number, one in sorted(of[rank].items()) if one[1] != "completed"), None)
            if oldest is not None and self._waits_alone(rank, of, oldest):
                return True
        return self.mismatched(rank)

    @staticmethod
    def _waits_alone(rank: Rank, of: Mapping[Rank, Mapping[int, tuple[object, str]]], number: int) -> bool:
        """Whether a rank's device has not reached a collective that all others' have."""
        states = [numbers[number][1] for other, numbers in of.items() if other != rank and number in numbers]
        return of[rank][number][1] == "scheduled" and bool(states) and all(state == "started" for state in states)

    @staticmethod
    def _other(rank: Rank, of: Mapping[Rank, Mapping[int, tuple[object, str]]]) -> bool:
        peers = [numbers for other, numbers in of.items() if other != rank]
        if rank not in of or not peers:
            return False
        oldest = next((number for number, one in sorted(of[rank].items()) if one[1] != "completed"), None)
        if oldest is None:
            return False
        own = of[rank][oldest][0]
        return all(oldest in numbers and numbers[oldest][0] != own for numbers in peers)
