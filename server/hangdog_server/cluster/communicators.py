"""Keeps what the agents tell of communicators lately, and puts together those of a job over its machines.

`now` is in seconds on a steady clock; nothing here waits or speaks. After a restart of the server it begins empty.
"""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hangdog_models.progress.communicator_window import (
    CommunicatorChanges,
    CommunicatorWindow,
    JobCommunicator,
    joined,
)
from hangdog_models.views import communicator_text
from hangdog_proto.codec.communicator_report import MOST_COMMUNICATORS
from hangdog_server.etag import digest

#: Windows that are kept of all machines together. Each takes some 500 bytes.
MOST_WINDOWS = 200_000
#: Communicators of a job in a table, those first in which a rank waits; of the others there is a count.
SHOWN = 100


@dataclass(frozen=True, slots=True)
class JobCommunicators:
    """The communicators of a job, those first in which a rank waits; of so many `machines`.

    `left_out` are windows that agents had no room to tell of, or this server none to keep.
    """

    communicators: tuple[JobCommunicator, ...] = ()
    machines: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class ReportedWindows:
    """What so many `machines` told last of one job: each window with its machine, and when it was told."""

    windows: Sequence[tuple[str, float, CommunicatorWindow]]
    machines: int
    left_out: int


@dataclass(slots=True)
class _MachineWindows:
    """What one machine told of one job: by a communicator's number when, and what. `unkept` were told and not kept."""

    windows: dict[int, tuple[float, CommunicatorWindow]] = field(default_factory=dict)
    untold: int = 0
    unkept: set[int] = field(default_factory=set)


def communicators_mark(found: JobCommunicators) -> str:
    """Another one once a line of their table would be another; seconds that pass change none."""
    shown = [communicator_text.cells(one) for one in found.communicators[:SHOWN]]
    return digest(shown, len(found.communicators), found.machines, found.left_out)


class Communicators:
    """What each machine told last of the communicators of its jobs."""

    def __init__(self) -> None:
        self._machines: dict[str, dict[str, _MachineWindows]] = {}
        self._count = 0

    def note(self, machine: str, changes: Mapping[str, CommunicatorChanges], now: float) -> None:
        """A machine told what changed; of jobs and communicators that it does not name, nothing did."""
        jobs = self._machines.setdefault(machine, {})
        for job, change in changes.items():
            kept = jobs.setdefault(job, _MachineWindows())
            kept.untold = change.left_out
            kept.unkept -= change.gone
            for number in change.gone & kept.windows.keys():
                del kept.windows[number]
                self._count -= 1
            for window in change.windows:
                self._keep(jobs, kept, window, now)

    def _keep(
        self, jobs: Mapping[str, _MachineWindows], kept: _MachineWindows, window: CommunicatorWindow, now: float
    ) -> None:
        number = window.communicator
        if number not in kept.windows:
            if self._count >= MOST_WINDOWS or sum(len(one.windows) for one in jobs.values()) >= MOST_COMMUNICATORS:
                if len(kept.unkept) < MOST_COMMUNICATORS:
                    kept.unkept.add(number)
                return
            self._count += 1
        kept.unkept.discard(number)
        # thousands of machines name the same few
        window = replace(window, name=sys.intern(window.name), operation=sys.intern(window.operation))
        kept.windows[number] = now, window

    def retain(self, machine: str, jobs: Collection[str]) -> None:
        """A machine says which jobs it runs now: the others ended there."""
        for job in [job for job in self._machines.get(machine, ()) if job not in jobs]:
            self._count -= len(self._machines[machine].pop(job).windows)

    def forget(self, machine: str) -> None:
        """A machine's agent is gone: what it told last may be true no longer."""
        self.retain(machine, ())
        self._machines.pop(machine, None)

    def reported(self, job: str, machines: Iterable[str]) -> ReportedWindows:
        """What these machines told last of a job; it stays as it is, whatever they tell later."""
        there = [(machine, self._machines.get(machine, {}).get(job)) for machine in machines]
        kept = [(machine, one) for machine, one in there if one is not None]
        windows = [(machine, at, window) for machine, one in kept for at, window in one.windows.values()]
        return ReportedWindows(windows, len(kept), sum(one.untold + len(one.unkept) for _, one in kept))


def put_together(reported: ReportedWindows, now: float) -> JobCommunicators:
    """The communicators of a job as they are now; of a large one it takes long, and any thread may do it."""
    windows = [(machine, window.later(max(0.0, now - at))) for machine, at, window in reported.windows]
    return JobCommunicators(joined(windows), reported.machines, reported.left_out)
