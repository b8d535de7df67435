"""Monitors all jobs of this machine, tick by tick: CPU samples and progress signals of all trainers, stack samples if wanted."""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TypeVar

from hangdog_agent.capture.process_capture import CapturedProcess, Tools, look
from hangdog_agent.discovery.cpu_activity import CpuSample, sample_cpu
from hangdog_agent.discovery.discover import ProcessRole, RankProcesses
from hangdog_agent.numbers.log_numbers import LogNumbers
from hangdog_agent.stalls.job_monitor import JobMonitor, Key
from hangdog_agent.stalls.progress.logs import LastWords
from hangdog_agent.stalls.progress.progress_signal import ProgressSignal
from hangdog_agent.stalls.progress.sources import ProgressSources, Readings
from hangdog_agent.stalls.settings import StallSettings
from hangdog_agent.stalls.stack_motion import StackSample
from hangdog_agent.stalls.training_thread import Threads
from hangdog_models.diagnosis.observe import activity
from hangdog_models.numbers.number_watch import USUAL, NumberThresholds
from hangdog_models.planning.slowdown import Slowdown, StepPace
from hangdog_models.progress.communicator_window import CommunicatorWindow
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import RuleSet
from hangdog_models.stack import TRAINER, ProcessTrace
from hangdog_models.stall_timeouts import Sign

#: Children of one rank whose work is counted: most have a loader's workers, or a compiler's. Two reads of /proc each.
HELPERS = 64
#: Device files of accelerators whose users may spin until they are done: NVIDIA's, AMD's, others' (`accel`), AWS's, Huawei's.
_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/accel", "/dev/neuron0", "/dev/davinci_manager")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

T = TypeVar("T")


class StallMonitor:
    """The stall monitor of this machine. Only one thread may tick; `ask` may be called from any."""

    def __init__(
        self,
        tools: Tools,
        rules: RuleSet,
        settings: StallSettings,
        power: Readings = dict,
        numbers: NumberThresholds = USUAL,
    ) -> None:
        """`power` gives, by GPU, its last known power as a share of its limit and how busy it was, 0 to 1.

        `numbers` says which numbers of a log are wrong.
        """
        self._sources = ProgressSources(tools, settings, power, numbers)
        self._tools, self._power = tools, power
        self._rules = rules
        self._settings = settings
        self._devices = any(map(os.path.exists, _DEVICES))
        self._jobs: dict[str, JobMonitor] = {}
        self._asked: dict[str, tuple[float, bool]] = {}
        self._calm = False
        self._threads = Threads(tools.proc)
        self._helpers: Mapping[tuple[str, Rank], Sequence[RankProcesses]] = {}
        #: The jobs whose steps take longer than they used to, at the last tick.
        self.slowdowns: Mapping[str, Slowdown] = {}
        #: The ranks of each job that made progress, at the last tick.
        self.moving: Mapping[str, frozenset[Rank]] = {}
        #: The pace of the steps of each job that are timed, at the last tick.
        self.paces: Mapping[str, StepPace] = {}
        #: The communicators of each job whose trainers keep rings, at the last tick.
        self.communicators: Mapping[str, tuple[CommunicatorWindow, ...]] = {}

    @property
    def beat_s(self) -> float:
        """Seconds from one tick to the next, at least."""
        return self._settings.beat_s

    @property
    def next_s(self) -> float:
        """Seconds from the last tick to the next if nobody asks: more while all trainers make progress."""
        return self._settings.beat_s * (self._settings.calm_beats if self._calm else 1)

    @property
    def calm(self) -> bool:
        """Whether there are trainers, and all that were there at the last tick make progress."""
        return self._calm and bool(self._jobs)

    def ask(self, job: str, seconds: float, steps: bool = False) -> None:
        """Samples all trainers of a job for so many seconds: another machine suspects it. `steps`: it has seen the job's."""
        self._asked[job] = time.monotonic() + seconds, steps

    def tick(
        self, members: Sequence[RankProcesses], ended: Mapping[Key, RankProcesses] = MappingProxyType({})
    ) -> dict[str, dict[Rank, Sign]]:
        """Samples every trainer among `members`; the stall signs of each job's ranks. Jobs without any are absent.

        The last log lines of those that `ended` are read.
        """
        trainers: dict[str, dict[Key, RankProcesses]] = {}
        for member in members:
            if member.kind is ProcessRole.TRAINER:
                trainers.setdefault(member.key, {})[member.process.key] = member
        gpus = self._devices or bool(self._power())
        self._jobs = {job: self._jobs.get(job) or JobMonitor(self._settings) for job in trainers}
        self._helpers = _helpers(members)
        received = self._sources.read(trainers, ended)
        self._sources.note(self._tools, received)
        self.communicators = self._sources.communicators(trainers)
        everybody = {key: member for members in trainers.values() for key, member in members.items()}
        threads = self._threads.find(everybody, self._seen)
        signs: dict[str, dict[Rank, Sign]] = {}
        moving: dict[str, frozenset[Rank]] = {}
        self._calm = not ended
        for job, watch in self._jobs.items():
            watch.gpus = gpus
            samples = self._cpu_samples(trainers[job], received, threads)
            watch.add_cpu_samples(samples)
            watch.add_signals(received)
            if (asked := self._asked.pop(job, None)) is not None:
                watch.ask(*asked)
            wanted = watch.wants(time.monotonic())
            if wanted:
                watch.take(self._samples([trainers[job][key] for key in wanted]))
            if shown := watch.signs(time.monotonic()):
                signs[job] = shown
            ranks = watch.moving(time.monotonic(), shown)
            if ranks:
                moving[job] = ranks
            all_alive = len(samples) == len(trainers[job])
            self._calm = self._calm and all_alive and watch.calm(time.monotonic(), ranks)
        self.moving = moving
        self.slowdowns = {job: slow for job, watch in self._jobs.items() if (slow := watch.slowdown()) is not None}
        now = time.monotonic()
        self.paces = {job: pace for job, watch in self._jobs.items() if (pace := watch.pace(now)) is not None}
        return signs

    def last_words(self, keys: Collection[Key]) -> LastWords:
        """What these trainers wrote before they ended."""
        return self._sources.last_words(keys)

    def numbers(self) -> Sequence[tuple[frozenset[Key], LogNumbers]]:
        """The numbers of each log of the trainers, with who writes to it."""
        return self._sources.numbers()

    def close(self) -> None:
        """Ends the processes that look at trainers' files."""
        self._sources.close()

    def _cpu_samples(
        self,
        trainers: Mapping[Key, RankProcesses],
        received: Mapping[Key, Sequence[ProgressSignal]],
        threads: Mapping[Key, int],
    ) -> dict[Key, tuple[Rank, CpuSample | None]]:
        """CPU samples of all monitored trainers; without one (not counted, or no thread trains) only those with a signal."""
        found: dict[Key, tuple[Rank, CpuSample | None]] = {}
        for key, member in trainers.items():
            pid = member.process.pid
            tid = threads.get(key, pid)
            sample = sample_cpu(self._tools.proc, pid, time.monotonic(), tid) if tid else None
            if sample is not None or (received[key] and self._tools.proc.stat(pid) is not None):
                found[key] = (member.rank, sample)
        return found

    def _samples(self, members: Sequence[RankProcesses]) -> dict[Key, StackSample]:
        return self._at_once(members, self._sample)

    def _sample(self, member: RankProcesses) -> StackSample:
        process, seen = member.process, self._look(member)
        trace = ProcessTrace(member.rank, TRAINER, process.pid, seen.threads, seen.state, seen.missing)
        proc, state = self._tools.proc, seen.state
        helpers = self._helpers.get((member.key, member.rank), ())
        stats = (proc.stat(each.process.pid) for each in helpers)
        workers = (each for each in helpers if each.kind is ProcessRole.DATALOADER)
        return StackSample(
            time.monotonic(),
            activity.read(trace, self._rules),
            proc.io_bytes(process.pid),
            ran_s=state.ran_s if state is not None else None,
            wakes=state.wakes if state is not None else None,
            dozes=state is not None and state.state == "S" and "nanosleep" in state.wchan,
            helped_s=sum(stat.cpu_ticks for stat in stats if stat is not None) / _TICKS_PER_S,
            helper_bytes=sum(proc.io_bytes(each.process.pid) or 0 for each in workers),
        )

    def _seen(self, members: Sequence[RankProcesses]) -> dict[Key, CapturedProcess]:
        return self._at_once(members, self._look)

    def _look(self, member: RankProcesses) -> CapturedProcess:
        until = time.monotonic() + self._tools.settings.nonblocking_s
        return look(member.process, self._tools, until, attach=False)

    def _at_once(self, members: Sequence[RankProcesses], taken: Callable[[RankProcesses], T]) -> dict[Key, T]:
        with ThreadPoolExecutor(min(self._tools.settings.pool(), len(members)), "hangdog-sample") as pool:
            return dict(zip((member.process.key for member in members), pool.map(taken, members), strict=True))


def _helpers(members: Sequence[RankProcesses]) -> dict[tuple[str, Rank], list[RankProcesses]]:
    """The children of each rank, so few that a sample stays cheap."""
    found: dict[tuple[str, Rank], list[RankProcesses]] = {}
    for member in members:
        if member.kind is not ProcessRole.TRAINER:
            of_rank = found.setdefault((member.key, member.rank), [])
            if len(of_rank) < HELPERS:
                of_rank.append(member)
    return found
