"""Reads all progress signals of this machine's trainers, each source at its own pace; none is waited for."""

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.discovery.discover import Key, RankProcesses
from hangdog_agent.numbers.log_numbers import LogNumbers
from hangdog_agent.stalls.progress.collective_counts import Collectives
from hangdog_agent.stalls.progress.gpu_power import Power
from hangdog_agent.stalls.progress.logs import LastWords, Logs
from hangdog_agent.stalls.progress.network_bytes import Flow
from hangdog_agent.stalls.progress.profiler_rings import RingSignal
from hangdog_agent.stalls.progress.progress_signal import ProgressSignal
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.numbers.number_watch import USUAL, NumberThresholds
from hangdog_models.progress.communicator_window import CommunicatorWindow

log = logging.getLogger(__name__)

#: By GPU its power as a share of its limit, and how busy it is, 0 to 1.
Readings = Callable[[], Mapping[str, tuple[float, float]]]


class ProgressSources:
    """All of them. Only one thread may use it."""

    def __init__(
        self, tools: Tools, settings: StallSettings, power: Readings = dict, numbers: NumberThresholds = USUAL
    ) -> None:
        """`power` gives what is known of the GPUs without asking them; `numbers` says which numbers of a log are wrong."""
        self._power = power
        self._logs = Logs(os.fspath(tools.proc.root), settings, numbers)
        self._collectives = Collectives(tools, settings)
        self._flow = Flow(CheckPaths(proc=tools.proc.root), settings)
        self._gpus = Power(settings)
        self._windowed, self._windows = 0, dict[str, tuple[CommunicatorWindow, ...]]()

    def read(
        self,
        trainers: Mapping[str, Mapping[Key, RankProcesses]],
        ended: Mapping[Key, RankProcesses] = MappingProxyType({}),
    ) -> dict[Key, list[ProgressSignal]]:
        """The signals of each trainer, by job; a signal of a job or the machine counts for each of its trainers.

        The last log lines of those that `ended` are read.
        """
        now = time.monotonic()
        everybody = {key: member for members in trainers.values() for key, member in members.items()}
        received = self._logs.read(everybody, now, ended)
        received |= {key: [] for key in everybody if key not in received}
        jobs = {job: list(members.values()) for job, members in trainers.items() if members}
        collectives = self._collectives.read(jobs, now)
        flow = self._flow.read({job: members[0].process.pid for job, members in jobs.items()}, now)
        gpus = self._gpus.look(self._power(), now)
        for job, members in trainers.items():
            of_all = [*([collectives[job]] if job in collectives else []), *flow.get(job, ()), *gpus]
            for key in members:
                received[key] += of_all
        return received

    @staticmethod
    def note(tools: Tools, received: Mapping[Key, Sequence[ProgressSignal]]) -> None:
        """Keeps for captures how often each trainer's own progress advanced, and what its device did, as far as signals tell."""
        for noted in (tools.steps, tools.devices):
            for key in [key for key in noted if key not in received]:
                del noted[key]
        for key, signals in received.items():
            advances = sum(signal.advances for signal in signals if signal.authoritative)
            if advances:
                tools.steps[key] = advances
            for signal in signals:
                if isinstance(signal, RingSignal) and (device := signal.device) is not None:
                    tools.devices[key] = device

    def last_words(self, keys: Collection[Key]) -> LastWords:
        """What these trainers wrote before they ended."""
        return self._logs.last_words(keys)

    def numbers(self) -> Sequence[tuple[frozenset[Key], LogNumbers]]:
        """The numbers of each log of the trainers, with who writes to it."""
        return self._logs.numbers()

    def communicators(
        self, trainers: Mapping[str, Mapping[Key, RankProcesses]]
    ) -> Mapping[str, tuple[CommunicatorWindow, ...]]:
        """The communicators of each job whose trainers keep rings; the same as before where nothing was read meanwhile."""
        windows = self._logs.communicators
        if windows.changes != self._windowed:
            jobs = {
                job: windows.of([(key, member.rank) for key, member in members.items()])
                for job, members in trainers.items()
            }
            self._windowed, self._windows = windows.changes, {job: found for job, found in jobs.items() if found}
        return self._windows

    def close(self) -> None:
        """Ends the processes that look at trainers' files."""
        self._logs.close()
