"""Follows what NCCL Inspector writes for trainers that load it in place of our profiler plug-in: a progress signal for each.

JSON lines tell which communicator has completed how much, so the busiest one counts, as with rings. Prometheus text does not,
so it only says that something completed. In flight is what neither tells of.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hangdog_agent.capture import inspector_dump
from hangdog_agent.discovery.discover import Key, RankProcesses
from hangdog_agent.procfs import Proc
from hangdog_agent.stalls.progress.communicator_windows import CommunicatorWindows
from hangdog_agent.stalls.progress.file_reader import FileQuery, Found, Identity
from hangdog_agent.stalls.progress.progress_signal import ProgressSignal, SignalKind
from hangdog_agent.stalls.progress.ring_count import CommunicatorReading
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.reading.collectives import inspected_progress
from hangdog_models.reading.collectives.inspected_progress import CompletedOperations

#: Of a trainer that has no such file open it is looked for again so seldom: Inspector opens it at its first dump. Seconds.
_AGAIN_S = 10.0
#: One that writes more seldom tells too late whether a communicator rests, which ten seconds decide. Seconds.
_MOST_INTERVAL_S = 5.0
#: A communicator of which nothing was written for so long has probably ended, which Inspector does not tell. Seconds.
_ENDED_S = 600.0
#: Communicators of one process that are followed, as many as a ring has places for.
_MOST = 64
#: Characters of a line that is not written to its end yet; one with all of its events has a few thousand.
_MOST_LINE = 1 << 15


class InspectedSignal(ProgressSignal):
    """The operations that the busiest communicator has completed; of Prometheus text, whether any has."""

    def __init__(self, floor_s: float, prometheus: bool) -> None:
        super().__init__(SignalKind.COLLECTIVES, floor_s, authoritative=not prometheus)
        self.counts_collectives = not prometheus


@dataclass(slots=True)
class _FollowedDump:
    """A file that is followed. `come`: the number of the busiest communicator, and its count; of Prometheus text its totals."""

    prometheus: bool
    descriptor: int
    tells_windows: bool
    signal: InspectedSignal
    identity: Identity | None = None
    offset: int = 0
    touched_ns: int = 0
    rest: str = ""
    come: tuple[int, int] | None = None
    communicators: dict[int, tuple[CompletedOperations, float]] = field(default_factory=dict)

    def take(self, found: Found, at: float) -> bool:
        """Whether it shows that operations completed since the last reading."""
        text, touched = found.data.decode("utf-8", "replace"), found.touched_ns != self.touched_ns
        self.offset, self.touched_ns = found.offset, found.touched_ns
        if self.prometheus:
            self.offset = 0  # it is written anew each time
            total = inspected_progress.totals(text)
            return touched and self.come is None if total is None else self._advance((0, total))
        text = self.rest + text if found.joins else text.partition("\n")[2]
        whole, _, rest = text.rpartition("\n")
        self.rest = rest[-_MOST_LINE:]
        for one in inspected_progress.completed(whole):
            if one.communicator in self.communicators:
                self.communicators[one.communicator][0].join(one)
                self.communicators[one.communicator] = self.communicators[one.communicator][0], at
            elif len(self.communicators) < _MOST:
                self.communicators[one.communicator] = one, at
        self.communicators = {number: one for number, one in self.communicators.items() if at - one[1] < _ENDED_S}
        busiest = max(((one.count, number) for number, (one, _) in self.communicators.items()), default=None)
        return busiest is not None and self._advance((busiest[1], busiest[0]))

    def _advance(self, come: tuple[int, int]) -> bool:
        """Another communicator than before shows nothing: its records were only missed until now."""
        before, self.come = self.come, come
        return before is not None and come[0] == before[0] and come[1] > before[1]

    def readings(self) -> list[CommunicatorReading]:
        """All communicators, as rings tell of them. How many operations a rank has entered is not known."""
        return [
            CommunicatorReading(number, one.name, one.size, one.count, None, one.count, None, "", True)
            for number, (one, _) in self.communicators.items()
        ]


class InspectorFiles:
    """Those of all trainers. It says which files are to be looked at, and takes what was found; it opens none."""

    def __init__(self, proc: Proc, settings: StallSettings, windows: CommunicatorWindows) -> None:
        """`windows` are told what is known of all communicators."""
        self._proc, self._settings, self._windows = proc, settings, windows
        self._dumps: dict[Key, _FollowedDump] = {}
        self._absent_until: dict[Key, float] = {}

    def queries(self, trainers: Mapping[Key, RankProcesses], now: float) -> dict[Key, FileQuery]:
        """The files that trainers have open."""
        found: dict[Key, FileQuery] = {}
        for key, member in trainers.items():
            if key not in self._dumps and self._absent_until.get(key, now) <= now:
                self._find(key, member, now)
            if (dump := self._dumps.get(key)) is not None:
                most = self._settings.inspector_bytes
                found[key] = FileQuery(key, dump.descriptor, "", most, dump.identity, dump.offset)
        return found

    def _find(self, key: Key, member: RankProcesses, now: float) -> None:
        opened = inspector_dump.find(member, self._proc)
        if opened is None:
            self._absent_until[key] = now + _AGAIN_S
            return
        tells = not opened.prometheus and (inspector_dump.interval_s(member) or 0.0) <= _MOST_INTERVAL_S
        signal = InspectedSignal(self._settings.suspicious_s, opened.prometheus)
        self._dumps[key] = _FollowedDump(opened.prometheus, opened.descriptor, tells, signal)

    def take(self, key: Key, found: Found | None, at: float) -> None:
        """Takes one reading. Another file under the same descriptor is none of Inspector's: it is looked for anew."""
        dump = self._dumps.get(key)
        if dump is None:
            return
        if found is None or (dump.identity is not None and found.identity != dump.identity):
            del self._dumps[key]
            self._windows.forget(key)
            return
        dump.identity = found.identity
        dump.signal.look(dump.take(found, at), at, dump.come[1] if dump.come is not None else None, found.age_s)
        if dump.tells_windows:
            self._windows.take(key, dump.readings(), at)

    def forget(self, trainers: Collection[Key]) -> None:
        """Of all others than these."""
        for key in self._dumps.keys() - trainers:
            self._windows.forget(key)
        self._dumps = {key: dump for key, dump in self._dumps.items() if key in trainers}
        self._absent_until = {key: until for key, until in self._absent_until.items() if key in trainers}

    def signals(self) -> dict[Key, ProgressSignal]:
        """The progress signal of each trainer that has such a file."""
        return {key: dump.signal for key, dump in self._dumps.items()}
