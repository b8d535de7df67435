"""Keeps what rings tell of all communicators: how many operations each began lately, and since when none of its counts grew."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hangdog_agent.discovery.discover import Key
from hangdog_agent.stalls.progress.ring_count import CommunicatorReading
from hangdog_models.progress.communicator_window import CommunicatorWindow
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.printable import printable

#: Readings over which a rate is taken: half a minute to a minute, in which most jobs make a step.
_READINGS = 7
#: Characters of a name and of an operation: a ring has 63 bytes for the one and 15 for the other, and some are escaped.
_NAME, _OPERATION = 64, 20


@dataclass(slots=True)
class _CommunicatorTrack:
    """One communicator on one rank: its latest reading, and when its counts grew last."""

    latest: CommunicatorReading
    moved_at: float
    begun: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_READINGS))

    def take(self, reading: CommunicatorReading, at: float) -> None:
        if reading.moved != self.latest.moved:
            self.moved_at = at
        self.latest = reading
        self.begun.append((at, reading.operations))

    @property
    def rate(self) -> float:
        (first_at, first), (last_at, last) = self.begun[0], self.begun[-1]
        return max(0, last - first) / (last_at - first_at) if last_at > first_at else 0.0


class CommunicatorWindows:
    """The communicators of all trainers. Only one thread may use it."""

    def __init__(self) -> None:
        self._tracks: dict[Key, dict[int, _CommunicatorTrack]] = {}
        self._read_at: dict[Key, float] = {}
        #: Another number once anything was read or forgotten.
        self.changes = 0

    def take(self, key: Key, communicators: Iterable[Sequence[Any]], at: float) -> None:
        """Takes all communicators of one trainer, as `CommunicatorReading` has them; of any other the trainer has no more."""
        before, now = self._tracks.get(key, {}), dict[int, _CommunicatorTrack]()
        for fields in communicators:
            reading = CommunicatorReading(*fields)
            if reading.size > MAX_RANK:
                continue  # nothing that a communicator can be
            track = before.get(reading.number)
            if track is None or reading.operations < track.latest.operations:  # another one under the same number
                track = _CommunicatorTrack(reading, at)
            track.take(reading, at)
            now[reading.number] = track
        self._tracks[key], self._read_at[key] = now, at
        self.changes += 1

    def forget(self, key: Key) -> None:
        """A trainer has ended, or keeps no ring."""
        if self._tracks.pop(key, None) is not None:
            del self._read_at[key]
            self.changes += 1

    def of(self, members: Iterable[tuple[Key, Rank]]) -> tuple[CommunicatorWindow, ...]:
        """The communicators of these trainers, by the latest reading of each."""
        found: dict[int, list[tuple[Rank, float, _CommunicatorTrack]]] = {}
        for key, rank in members:
            for number, track in self._tracks.get(key, {}).items():
                found.setdefault(number, []).append((rank, self._read_at[key], track))
        return tuple(_window(number, tracks) for number, tracks in found.items())


def _window(number: int, tracks: Sequence[tuple[Rank, float, _CommunicatorTrack]]) -> CommunicatorWindow:
    """Hundreds of these are made at once, so each track is gone over once."""
    latest, orders, rate, moved_at, read_at = tracks[0][2].latest, list[tuple[int, Rank]](), 0.0, 0.0, 0.0
    age_s: float | None = None
    operation = ""
    for rank, at, track in tracks:
        one = track.latest
        rate, moved_at, read_at = max(rate, track.rate), max(moved_at, track.moved_at), max(read_at, at)
        if one.order is not None:
            orders.append((one.order, rank))
        if one.age_s is not None and (age_s is None or one.age_s > age_s):
            age_s, operation = one.age_s, one.function
    orders.sort()
    comparable = len(orders) == len(tracks)
    lowest, highest = (orders[0][0], orders[-1][0]) if comparable else (None, None)
    return CommunicatorWindow(
        communicator=number,
        name=printable(latest.name, _NAME),
        size=latest.size,
        ranks=tuple(sorted({rank for rank, _, _ in tracks})),
        rate=rate,
        lowest=lowest,
        highest=highest,
        behind=tuple(sorted({rank for order, rank in orders if order == lowest})) if comparable else (),
        idle_s=read_at - moved_at,
        age_s=age_s,
        operation=printable(operation, _OPERATION),
        completed_only=any(track.latest.completed_only for _, _, track in tracks),
    )
