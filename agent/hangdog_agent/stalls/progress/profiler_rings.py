"""Follows the rings of the NCCL profiler plug-in: a progress signal for each trainer that has one, by its busiest communicator.

Now and then the same reading tells of all communicators."""

import json
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from hangdog_agent.capture import ring_statement
from hangdog_agent.discovery.discover import Key, RankProcesses
from hangdog_agent.procfs import Proc
from hangdog_agent.stalls.progress.communicator_windows import CommunicatorWindows
from hangdog_agent.stalls.progress.file_reader import FileQuery, Found
from hangdog_agent.stalls.progress.progress_signal import LEAST, REMEMBERED, UNUSUAL, ProgressSignal, SignalKind
from hangdog_agent.stalls.progress.ring_count import BEHIND, SENDING, WAITING
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.progress.device_readings import DeviceReadings

#: Of a trainer that keeps none it is asked again so seldom: the first communicator begins late. Seconds.
_AGAIN_S = 10.0
#: Two looks may come a little early, or every other one would be left out. Seconds.
_EARLY_S = 0.2
#: Readings that tell to whom a device sends lately: those of one to three minutes.
_LATELY = 64


class RingSignal(ProgressSignal):
    """The counts of a ring, and its oldest operation in flight. It stalls as others do, or before: see `stalled_since`."""

    counts_collectives = True

    def __init__(self, floor_s: float) -> None:
        super().__init__(SignalKind.COLLECTIVES, floor_s, authoritative=True)
        self._order: int | None = None
        self._age_s = 0.0
        self._ages: deque[float] = deque(maxlen=REMEMBERED)
        self._found = dict.fromkeys((WAITING, BEHIND, SENDING), 0)
        # of lately, by (communicator, own number in it, peer's): to whom data was under way, or nobody
        self._links: deque[tuple[int, int, int]] = deque(maxlen=_LATELY)

    def fly(self, order: int | None, age_s: float) -> None:
        """Takes the oldest operation in flight at the latest look; `order` is None where there is none."""
        if self._order is not None and order != self._order:
            self._ages.append(self._age_s)
        self._order, self._age_s = order, age_s

    def find(self, doing: str, communicator: int = 0, number: int = -1, peer: int = -1) -> None:
        """Takes what the device did at the latest look, and the transfer that shows it, if one does."""
        self._found[doing] += 1
        if number >= 0:
            self._links.append((communicator, number, peer))

    @property
    def device(self) -> DeviceReadings | None:
        """What the device did at all looks; None before it was seen in a collective, or before one."""
        if not any(self._found.values()):
            return None
        links = Counter(link for link in self._links if link[2] >= 0) or Counter(self._links)
        communicator, number, peer = links.most_common(1)[0][0] if links else (0, -1, -1)
        waiting, behind, sending = (self._found[doing] for doing in (WAITING, BEHIND, SENDING))
        return DeviceReadings(waiting, behind, sending, communicator, number, peer)

    def mark_benign(self, at: float) -> None:
        """The operation that is in flight may be so for as long."""
        super().mark_benign(at)
        if self._order is not None:
            self._ages.append(self._age_s)

    @property
    def stalled_since(self) -> float | None:
        """When it advanced last, if that is longer ago than ever, or an operation is in flight for longer than any was.

        So a hang is seen in seconds also where minutes between two steps are usual, because of evaluations or of checkpoints.
        """
        stalled = super().stalled_since
        if stalled is not None or self._order is None or self.advances < LEAST or self._looked_at is None:
            return stalled
        overdue = self._age_s >= max(self._floor_s, UNUSUAL * max(self._ages, default=0.0))
        return self.advanced_at if overdue and self._looked_at - self.advanced_at >= self._floor_s else None


@dataclass(slots=True)
class _TrainerRing:
    """How far the busiest communicator had `come`, as (its number, its count), and the progress signal of that."""

    come: tuple[int, int]
    signal: RingSignal


class Rings:
    """The rings of all trainers. It says which files are to be looked at, and takes what was found; it opens none."""

    def __init__(self, proc: str, settings: StallSettings) -> None:
        """`proc` is the folder of the process table."""
        self._proc, self._settings = Proc(Path(proc)), settings
        self._rings: dict[Key, _TrainerRing] = {}
        self._absent_until: dict[Key, float] = {}
        self._everything_at = float("-inf")
        #: What those readings told of all communicators, and what else tells of those of trainers without a ring.
        self.windows = CommunicatorWindows()

    def queries(self, trainers: Mapping[Key, RankProcesses], now: float) -> dict[Key, FileQuery]:
        """The rings that may be there."""
        found: dict[Key, FileQuery] = {}
        every_s = self._settings.communicators_every_s
        if any(not ring.signal.advancing for ring in self._rings.values()):
            every_s /= 2
        everything = 0 < every_s <= now - self._everything_at + _EARLY_S
        self._everything_at = now if everything else self._everything_at
        for key, member in trainers.items():
            if self._absent_until.get(key, now) > now:
                continue
            if path := ring_statement.place(member, self._proc):
                found[key] = FileQuery(key, path=path, ring=True, everything=everything)
            else:
                self._absent_until[key] = now + _AGAIN_S
        return found

    def take(self, key: Key, found: Found | None, at: float) -> None:
        """Takes one reading. Another communicator than before shows nothing: it has just begun, or the other one ended."""
        if found is None or not found.data:
            if self._rings.pop(key, None) is not None:
                self.windows.forget(key)
            self._absent_until[key] = at + _AGAIN_S
            return
        reading = json.loads(found.data)
        number, moved = reading["number"], reading["moved"]
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = _TrainerRing((number, moved), RingSignal(self._settings.suspicious_s))
        same = number == ring.come[0]
        ring.signal.look(same and moved > ring.come[1], at, reading["operations"])
        ring.signal.fly(reading.get("order") if same else None, reading.get("age_s", 0.0))
        if "device" in reading:
            ring.signal.find(*reading["device"])
        ring.come = number, moved
        if "communicators" in reading:
            self.windows.take(key, reading["communicators"], at)

    def forget(self, trainers: Collection[Key]) -> None:
        """Of all others than these."""
        for key in self._rings.keys() - trainers:
            self.windows.forget(key)
        self._rings = {key: ring for key, ring in self._rings.items() if key in trainers}
        self._absent_until = {key: until for key, until in self._absent_until.items() if key in trainers}

    def signals(self) -> dict[Key, ProgressSignal]:
        """The progress signal of each trainer whose ring counts."""
        return {key: ring.signal for key, ring in self._rings.items()}
