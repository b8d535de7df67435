"""Decides what a server is told of communicators, and when: what changed, each of them once a minute, and so many bytes at most."""

from collections.abc import Iterator, Mapping, Sequence

from hangdog_models.progress.communicator_window import CommunicatorChanges, CommunicatorWindow
from hangdog_proto.codec.communicator_report import MOST_COMMUNICATORS, pack, pack_window
from hangdog_proto.codec.stall_signs import JobOwners
from hangdog_proto.generated import hangdog_pb2 as pb

#: Whatever changes, no more bytes a second are sent over a long time, nor more at once: a start and a hang fit into one message.
BYTES_S, BURST = 512, 32 << 10
#: With less room than this it waits for more: a message of a few bytes is mostly the name of its job.
_LEAST = 1024
#: Each is told of so often, even if nothing changed: its rate drifts. Seconds.
REFRESH_S = 60.0
#: A rate that is so many times as high, or as low, is a change. One step more or less in half a minute is none.
_RATE_CHANGES = 3.0
#: What stands around a window in a report: its tag and length, and its share of the job's name and owner. Bytes.
_ENVELOPE = 4

Windows = Mapping[str, Sequence[CommunicatorWindow]]
_Sent = dict[int, tuple[float, CommunicatorWindow]]


class CommunicatorReports:
    """What the server was told over one connection. All times are of one steady clock."""

    def __init__(self) -> None:
        self._sent: dict[str, _Sent] = {}
        self._left_out: dict[str, int] = {}
        self._bytes, self._counted_at = float(BURST), 0.0

    def begin(self) -> None:
        """Another session began: its server was told nothing."""
        self._sent, self._left_out = {}, {}

    def due(self, windows: Windows, now: float) -> bool:
        """Whether there is anything to tell, and room for it."""
        return self._room(now) >= _LEAST and next(self._changes_of(windows, now), None) is not None

    def take(self, windows: Windows, job_owners: JobOwners, now: float) -> pb.CommunicatorReport:
        """What is to be told now, which counts as told from then on.

        What finds no room is told later: those that wait or rest come first.
        """
        room, found = self._room(now), dict[str, CommunicatorChanges]()
        for job, change in list(self._changes_of(windows, now)):
            sent, chosen = self._sent.setdefault(job, {}), []
            for window in sorted(change.windows, key=lambda one: (not one.waits, not one.rests)):
                if (room := room - pack_window(window).ByteSize() - _ENVELOPE) <= 0:
                    break
                sent[window.communicator] = now, window
                chosen.append(window)
            for number in change.gone:
                del sent[number]
            self._left_out[job] = change.left_out
            found[job] = CommunicatorChanges(tuple(chosen), change.gone, change.left_out)
        for job in self._sent.keys() - windows.keys():
            del self._sent[job], self._left_out[job]
        report = pack(found, job_owners)
        self._bytes -= report.ByteSize()
        return report

    def _room(self, now: float) -> float:
        """How many bytes may be sent now."""
        self._bytes = min(BURST, self._bytes + BYTES_S * max(0.0, now - self._counted_at))
        self._counted_at = now
        return self._bytes

    def _changes_of(self, windows: Windows, now: float) -> Iterator[tuple[str, CommunicatorChanges]]:
        """What is new of each job, in all: nothing of a job of which nothing is."""
        room = MOST_COMMUNICATORS
        for job in dict.fromkeys((*windows, *self._sent)):
            there = windows.get(job, ())
            kept = there if len(there) <= room else sorted(there, key=_importance)[:room]
            room -= len(kept)
            sent, left_out = self._sent.get(job, {}), len(there) - len(kept)
            gone = sent.keys() - {window.communicator for window in kept}
            old = any(now - at >= REFRESH_S for number, (at, _) in sent.items() if number not in gone)
            old_s = REFRESH_S / 2 if old else REFRESH_S  # they are told together, or each would need a message
            new = tuple(one for one in kept if _changed(sent.get(one.communicator), one, now - old_s))
            if gone or new or left_out != self._left_out.get(job, 0):
                yield job, CommunicatorChanges(new, frozenset(gone), left_out)


def _importance(window: CommunicatorWindow) -> tuple[object, ...]:
    return not window.waits, -window.rate, window.communicator


def _changed(sent: tuple[float, CommunicatorWindow] | None, now: CommunicatorWindow, old: float) -> bool:
    """Whether a window is to be told: it says something else than the one before, or that was told before `old`."""
    if sent is None or sent[0] <= old:
        return True
    before = sent[1]
    if (before.rests, before.waits, before.ranks) != (now.rests, now.waits, now.ranks):
        return True
    if now.rests:
        return (before.lowest, before.highest, before.behind) != (now.lowest, now.highest, now.behind) or (
            now.waits and before.operation != now.operation
        )
    low, high = sorted((before.rate, now.rate))
    return high > _RATE_CHANGES * low
