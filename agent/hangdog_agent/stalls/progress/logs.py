"""Follows the logs, heartbeat files, rings and Inspector files of the trainers, with a progress signal for each; the text stays in this process.

A trainer's log is its stdout and stderr where these are regular files, and the file its environment names.
"""

import logging
import re
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from hangdog_agent.discovery.discover import Key, RankProcesses
from hangdog_agent.discovery.environ_names import ERROR_FILE, HEARTBEAT, LOG, STEP_PATTERN
from hangdog_agent.numbers.log_numbers import LogNumbers, followed
from hangdog_agent.procfs import Proc
from hangdog_agent.stalls.progress.communicator_windows import CommunicatorWindows
from hangdog_agent.stalls.progress.file_reader import FileQuery, Found, Identity
from hangdog_agent.stalls.progress.heartbeat_files import Files
from hangdog_agent.stalls.progress.inspector_files import InspectorFiles
from hangdog_agent.stalls.progress.profiler_rings import Rings
from hangdog_agent.stalls.progress.progress_signal import ProgressSignal, SignalKind
from hangdog_agent.stalls.progress.safe_regex import safe
from hangdog_agent.stalls.progress.step_lines import StepLines
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.errors import WrongUse
from hangdog_models.numbers.number_watch import USUAL, NumberThresholds
from hangdog_models.reading.printable import printable

log = logging.getLogger(__name__)

#: Stdout and stderr.
_FDS = ("1", "2")
_LOG, _BEAT, _ERROR, _RING, _INSPECTOR = "log", "heartbeat", "error file", "ring", "inspector"
#: What is read of a log when a trainer has ended: what was appended to it in the last seconds, so many bytes of it at most. A
#: job of eight ranks that all end with an error writes some tens of kilobytes.
LAST_BYTES, LAST_S = 128 << 10, 60.0
#: What is no regular file is looked at again so seldom: a heartbeat begins late, and stdout may be turned into a file. Seconds.
_AGAIN_S = 10.0
#: Two looks may come a little early, or every other one would be left out. Seconds.
_EARLY_S = 0.2

#: A trainer, and which of its files: one of `_FDS`, or of the names above.
_Slot = tuple[Key, str]


@dataclass(slots=True)
class _Log:
    """One log file: `counted` follows every counter in it, `stepped` only those that surely count steps."""

    steps: StepLines
    numbers: LogNumbers
    counted: ProgressSignal
    stepped: ProgressSignal
    offset: int = 0
    marks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=256))

    def take(self, found: Found, at: float, begun: bool) -> None:
        """Takes what was appended; `begun`: the first time since a trainer here writes to it."""
        self.offset = found.offset
        self.marks.append((at, found.offset - len(found.data)))
        text = found.data.decode("utf-8", "replace")
        if not begun:
            self.numbers.take(text, found.joins, at)
        self.counted.work = self.numbers.work
        reported = self.steps.take(text, found.joins)
        self.counted.look(reported.counted, at, age_s=found.age_s)
        self.stepped.look(reported.stepped, at, self.steps.steps, found.age_s)

    def lately(self, now: float) -> int:
        """Where what was appended in the last seconds begins."""
        return next((offset for at, offset in self.marks if now - at <= LAST_S), self.offset)


@dataclass(frozen=True, slots=True)
class LastWords:
    """What trainers wrote before they ended: the ends of their logs, each with who wrote to it, and torch's error files."""

    logs: Mapping[frozenset[Key], bytes]
    errors: Mapping[Key, bytes]


@dataclass(slots=True)
class _HeartbeatFile:
    """A heartbeat file by its name, for some are replaced each time."""

    seen: tuple[Identity, int]
    signal: ProgressSignal


class Logs:
    """The logs and heartbeats of all trainers. Only one thread may use it; it never waits for a file."""

    def __init__(self, proc: str, settings: StallSettings, numbers: NumberThresholds = USUAL) -> None:
        """`proc` is the folder of the process table, `numbers` says which numbers of a log are wrong."""
        self._settings, self._thresholds = settings, numbers
        self._files: Files[_Slot] = Files(proc)
        self._names: dict[_Slot, Identity] = {}
        self._logs: dict[Identity, _Log] = {}
        self._heartbeats: dict[_Slot, _HeartbeatFile] = {}
        self._rings = Rings(proc, settings)
        self._inspected = InspectorFiles(Proc(Path(proc)), settings, self._rings.windows)
        self._absent_until: dict[_Slot, float] = {}
        self._patterns: dict[str, re.Pattern[str] | None] = {}
        self._logs_at = self._beats_at = self._rings_at = self._inspected_at = float("-inf")
        self._last: dict[Identity, bytes] = {}
        self._errors: dict[Key, bytes] = {}
        self._gone: dict[_Slot, tuple[Identity, float]] = {}

    def read(
        self,
        trainers: Mapping[Key, RankProcesses],
        now: float,
        ended: Mapping[Key, RankProcesses] = MappingProxyType({}),
    ) -> dict[Key, list[ProgressSignal]]:
        """Reads what is due; the progress signals of each trainer as known now. It reads the last log lines of those that `ended`."""
        trainers = {key: member for key, member in trainers.items() if key not in ended}
        self._forget({**trainers, **ended}, now)
        for at, found in self._files.look(self._last_wishes(ended, now) | self._wishes(trainers, now)):
            self._take(trainers, found, at)
        received: dict[Key, list[ProgressSignal]] = {key: [] for key in trainers}
        for (key, _), identity in self._names.items():
            if key in ended:
                continue
            one = self._logs[identity]
            received[key] += [one.stepped, one.counted]
        for (key, _), heartbeat in self._heartbeats.items():
            if key not in ended:
                received[key].append(heartbeat.signal)
        for key, signal in (*self._rings.signals().items(), *self._inspected.signals().items()):
            if key in received:
                received[key].append(signal)
        return received

    def last_words(self, keys: Collection[Key]) -> LastWords:
        """What was read of these trainers' last words."""
        logs = {
            of: self._last[identity]
            for identity, of in self._writers().items()
            if identity in self._last and not of.isdisjoint(keys)
        }
        return LastWords(logs, {key: data for key, data in self._errors.items() if key in keys})

    def numbers(self) -> list[tuple[frozenset[Key], LogNumbers]]:
        """The numbers of each log, with who writes to it."""
        return [(of, self._logs[one].numbers) for one, of in self._writers().items() if one in self._logs]

    @property
    def communicators(self) -> CommunicatorWindows:
        """What their rings and Inspectors told of all communicators."""
        return self._rings.windows

    def _writers(self) -> dict[Identity, frozenset[Key]]:
        writers: dict[Identity, set[Key]] = {}
        for (key, _), identity in self._names.items():
            writers.setdefault(identity, set()).add(key)
        return {identity: frozenset(of) for identity, of in writers.items()}

    def _last_wishes(self, ended: Mapping[Key, RankProcesses], now: float) -> dict[_Slot, FileQuery]:
        wishes: dict[_Slot, FileQuery] = {}
        claimed: set[Identity] = set()
        for key, member in ended.items() if self._settings.log_every_s > 0 else ():
            for name, (descriptor, path) in _log_places(member).items():
                if (key, name) in self._gone:
                    self._names[key, name], _ = self._gone.pop((key, name))
                known = self._names.get((key, name))
                if known is None or known in claimed:
                    continue
                claimed.add(known)
                begin = self._logs[known].lately(now)
                wishes[key, name] = FileQuery(key, descriptor, path, LAST_BYTES, known, begin, keep=True, ended=True)
            if path := _named(member, ERROR_FILE):
                wishes[key, _ERROR] = FileQuery(key, None, path, LAST_BYTES, keep=True, ended=True)
        return wishes

    def _forget(self, trainers: Mapping[Key, RankProcesses], now: float) -> None:
        self._gone = {slot: (one, at) for slot, (one, at) in self._gone.items() if now - at <= _AGAIN_S}
        self._gone |= {slot: (one, now) for slot, one in self._names.items() if slot[0] not in trainers}
        for table in (self._names, self._heartbeats, self._absent_until):
            for slot in [slot for slot in table if slot[0] not in trainers]:
                del table[slot]
        self._rings.forget(trainers)
        self._inspected.forget(trainers)
        held = {*self._names.values(), *(identity for identity, _ in self._gone.values())}
        self._logs = {identity: one for identity, one in self._logs.items() if identity in held}
        self._last = {identity: data for identity, data in self._last.items() if identity in held}
        self._errors = {key: data for key, data in self._errors.items() if key in trainers}

    def _wishes(self, trainers: Mapping[Key, RankProcesses], now: float) -> dict[_Slot, FileQuery]:
        logs_due = 0 < self._settings.log_every_s <= now - self._logs_at + _EARLY_S
        beats_due = 0 < self._settings.touch_every_s <= now - self._beats_at + _EARLY_S
        self._logs_at = now if logs_due else self._logs_at
        self._beats_at = now if beats_due else self._beats_at
        wishes: dict[_Slot, FileQuery] = {}
        claimed: set[Identity] = set()
        for key, member in trainers.items():
            for name, (descriptor, path) in (_log_places(member) if logs_due else {}).items():
                known = self._names.get((key, name))
                one = self._logs.get(known) if known is not None else None
                # what several ranks write to is read by way of one of them only
                most = 0 if known in claimed else self._settings.log_bytes
                offset = one.offset if one is not None else 0
                wishes[key, name] = FileQuery(key, descriptor, path, most, known, offset, keep=True)
                claimed |= {known} if known is not None else set()
            if beats_due and (path := _named(member, HEARTBEAT)):
                wishes[key, _BEAT] = FileQuery(key, path=path)
            if logs_due and (path := _named(member, ERROR_FILE)):  # there is none yet: how it is reached is kept
                wishes[key, _ERROR] = FileQuery(key, path=path, keep=True)
        if 0 < self._settings.ring_every_s <= now - self._rings_at + _EARLY_S:
            self._rings_at = now
            wishes |= {(key, _RING): query for key, query in self._rings.queries(trainers, now).items()}
        if 0 < self._settings.inspector_every_s <= now - self._inspected_at + _EARLY_S:
            self._inspected_at = now
            wishes |= {(key, _INSPECTOR): query for key, query in self._inspected.queries(trainers, now).items()}
        return {slot: wish for slot, wish in wishes.items() if self._absent_until.get(slot, now) <= now}

    def close(self) -> None:
        """Ends the processes that look."""
        self._files.close()

    def _take(self, trainers: Mapping[Key, RankProcesses], answer: Mapping[_Slot, Found | None], at: float) -> None:
        read: set[Identity] = set()
        for slot, found in answer.items():
            if slot[0] not in trainers:  # it ended meanwhile
                self._take_last(slot, found)
                continue
            if slot[1] == _RING:
                self._rings.take(slot[0], found, at)
                continue
            if slot[1] == _INSPECTOR:
                self._inspected.take(slot[0], found, at)
                continue
            if slot[1] == _ERROR:
                self._absent_until[slot] = at + _AGAIN_S
                continue
            if found is None:
                self._absent_until[slot] = at + _AGAIN_S
                if (identity := self._names.pop(slot, None)) is not None:  # its trainer may have ended just now
                    self._gone[slot] = identity, at
                self._heartbeats.pop(slot, None)
            elif slot[1] == _BEAT:
                self._take_beat(slot, found, at)
            else:
                begun = slot not in self._names and found.identity not in self._names.values()
                self._names[slot] = found.identity
                if found.identity not in self._logs:
                    self._logs[found.identity] = self._followed(trainers[slot[0]])
                if begun:  # what stands there may be of another start of the job: what was usual of that is nothing now
                    self._logs[found.identity].numbers = followed(self._thresholds)
                if found.identity not in read:
                    read.add(found.identity)
                    self._logs[found.identity].take(found, at, begun)

    def _take_last(self, slot: _Slot, found: Found | None) -> None:
        if found is None or not found.data:
            return
        if slot[1] == _ERROR:
            self._errors[slot[0]] = found.data
        elif self._names.get(slot) == found.identity:
            self._last[found.identity] = found.data

    def _take_beat(self, slot: _Slot, found: Found, at: float) -> None:
        seen = found.identity, found.touched_ns
        heartbeat = self._heartbeats.setdefault(
            slot,
            _HeartbeatFile(seen, ProgressSignal(SignalKind.HEARTBEAT, self._settings.suspicious_s, authoritative=True)),
        )
        heartbeat.signal.look(seen != heartbeat.seen, at, age_s=found.age_s)
        heartbeat.seen = seen

    def _followed(self, member: RankProcesses) -> _Log:
        """A log that is seen for the first time."""
        floor_s = self._settings.suspicious_s
        counted, stepped = (
            ProgressSignal(SignalKind.LINES, floor_s),
            ProgressSignal(SignalKind.LINES, floor_s, authoritative=True),
        )
        return _Log(StepLines(self._pattern(member)), followed(self._thresholds), counted, stepped)

    def _pattern(self, member: RankProcesses) -> re.Pattern[str] | None:
        text = (member.process.environ or {}).get(STEP_PATTERN, "")
        if not text:
            return None
        if text not in self._patterns:
            self._patterns.clear()  # jobs have one; it is kept so that a complaint is made once
            try:
                self._patterns[text] = safe(text)
            except WrongUse as error:
                words = printable(str(error))
                log.warning("%s of job %s is not used: %s; %s", STEP_PATTERN, member.job, words, error.hint)
                self._patterns[text] = None
        return self._patterns[text]


def _log_places(member: RankProcesses) -> dict[str, tuple[int | None, str]]:
    """The files a trainer logs to: what it has open as stdout and stderr, and the one its environment names."""
    places: dict[str, tuple[int | None, str]] = {name: (int(name), "") for name in _FDS}
    named = _named(member, LOG)
    return places | ({_LOG: (None, named)} if named else {})


def _named(member: RankProcesses, variable: str) -> str:
    return (member.process.environ or {}).get(variable, "")
