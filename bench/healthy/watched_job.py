"""A job that is played from recordings under the real watch: the agents' JobMonitor, the server's StallTracker, and the diagnosis."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from frameworks.environment import FRAMEWORKS, WORLD
from hangdog_agent.discovery.cpu_activity import CpuSample
from hangdog_agent.stalls.job_monitor import JobMonitor, Key
from hangdog_agent.stalls.settings import StallSettings
from hangdog_agent.stalls.stack_motion import StackSample
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.observe import activity
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import TRAINER, ProcessTrace, Thread
from hangdog_models.stall_timeouts import ASKED_AGAIN_S, OVER_S, RECHECK_S, Sign, Suspicion
from hangdog_models.topology import Layout, build
from hangdog_models.verdict import Verdict
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.settings import ServerSettings
from healthy.recording import Beat, Look, Process
from healthy.timeline import Playable, Second

NAME = "replayed"
#: A process below a trainer was looked at every few seconds; a look that is older says nothing of now. Seconds.
RECENT_S = 8.0


@dataclass(slots=True)
class _Counters:
    """Counters of one rank since its start: what passes in each second that is played is added up."""

    ran_s: float = 0.0
    queued_s: float = 0.0
    wakes: int = 0
    io: int = 0
    cpu_s: float = 0.0
    below_s: float = 0.0
    helpers_io: int = 0

    def add(self, before: Beat, after: Beat, helpers_io: int) -> None:
        """A second passes; `helpers_io` are the bytes that the workers of its data loader moved in it."""
        self.helpers_io += helpers_io
        self.ran_s += max(0.0, after.ran_s - before.ran_s)
        self.queued_s += max(0.0, after.queued_s - before.queued_s)
        self.wakes += max(0, after.wakes - before.wakes)
        self.io += max(0, (after.io or 0) - (before.io or 0))
        self.cpu_s += max(0.0, after.cpu_s - before.cpu_s)
        self.below_s += max(0.0, after.below_s - before.below_s)  # falls where a process below it ends


@dataclass(slots=True)
class _Machine:
    name: str
    ranks: tuple[Rank, ...]
    monitor: JobMonitor


@dataclass(frozen=True, slots=True)
class Opened:
    """An incident that would have been opened, and the verdict on it; `again`: a further look at one that was."""

    at: float
    again: bool
    suspicion: Suspicion
    verdict: Verdict


@dataclass(slots=True)
class WatchedJob:
    """One job, from a start to its end, on machines of `per_machine` ranks each. All times are of a clock that is played, too."""

    framework: str
    per_machine: int
    start: int = 0
    #: Ranks that are frozen from now on: their counters and stacks move no more.
    frozen: Mapping[int, tuple[Playable, int]] = field(default_factory=dict)
    tracker: StallTracker = field(default_factory=StallTracker)
    suspicion: Suspicion | None = None
    _counters: dict[int, _Counters] = field(default_factory=dict)
    _machines: list[_Machine] = field(default_factory=list)
    _asked: dict[str, float] = field(default_factory=dict)
    _taken: dict[int, tuple[int, int]] = field(default_factory=dict)
    _suspected_at: float = float("-inf")
    _again: bool = False
    _busy_until: float = float("-inf")

    def __post_init__(self) -> None:
        settings = StallSettings()
        self._counters = {rank: _Counters() for rank in range(WORLD)}
        for number in range(WORLD // self.per_machine):
            ranks = tuple(Rank(number * self.per_machine + one) for one in range(self.per_machine))
            self._machines.append(_Machine(f"node-{number}", ranks, JobMonitor(settings)))

    def second(self, now: float, second: Second, ahead: Sequence[Second]) -> Opened | None:
        """Plays one second; answers an incident where one is opened at its end. `ahead` are the seconds from this one on."""
        for rank, counters in self._counters.items():
            if rank not in self.frozen:
                beats = second.recording.recording.beats[rank]
                counters.add(beats[second.beat - 1], beats[second.beat], second.recording.helpers_io(rank, second.beat))
        for machine in self._machines:
            self.tracker.note(machine.name, self._signs(machine, now, second), now)
        return self._think(now, ahead)

    def _signs(self, machine: _Machine, now: float, second: Second) -> Mapping[str, Mapping[Rank, Sign]]:
        """What the agent of a machine does each second, see hangdog_agent.stalls.monitor."""
        monitor = machine.monitor
        monitor.add_cpu_samples({self._key(rank): (rank, self._beat(rank, now)) for rank in machine.ranks})
        wanted = monitor.wants(now)
        if wanted:
            ranks = [rank for rank in machine.ranks if self._key(rank) in wanted and self._is_new(rank, second)]
            monitor.take({self._key(rank): self._sample(rank, now, second) for rank in ranks})
        signs = monitor.signs(now)
        return {NAME: signs} if signs else {}

    def _think(self, now: float, ahead: Sequence[Second]) -> Opened | None:
        """What the server does each second, see hangdog_server.incidents.stall_watch."""
        doubted = self.tracker.doubted()
        if doubted:
            for machine in self._machines:
                if now - self._asked.get(machine.name, float("-inf")) >= ASKED_AGAIN_S:
                    self._asked[machine.name] = now
                    machine.monitor.ask(now + RECHECK_S)
        running = {machine.name: AnnouncedJob(NAME, machine.ranks, WORLD) for machine in self._machines}
        self.tracker.seen((NAME,), now)
        looked_into = doubted or self.tracker.learns(NAME)
        self.suspicion = self.tracker.suspicion(NAME, running, now) if looked_into else None
        if self.suspicion is not None:
            self._suspected_at = now
        elif now - self._suspected_at >= OVER_S:
            self._again = False
        if not self.tracker.due(NAME, self.suspicion, now) or self.suspicion is None or now < self._busy_until:
            return None
        settings = ServerSettings()
        apart = int(settings.interval_s)
        opened = Opened(
            now, self._again, self.suspicion, self._judged(ahead[: settings.rounds * apart : apart], self.suspicion)
        )
        self._busy_until = now + settings.rounds * apart
        self._again = True
        self.tracker.asked(NAME, opened.verdict.kind, self._busy_until, bool(opened.verdict.evict.machines))
        return opened

    def _judged(self, looked: Sequence[Second], suspicion: Suspicion) -> Verdict:
        framework, settings = FRAMEWORKS[self.framework], ServerSettings()
        counters = {rank: replace(one) for rank, one in self._counters.items()}
        rounds, before = [], None
        for number, second in enumerate(looked):
            if before is not None:
                self._pass(counters, before, second)
            before = second
            rounds.append(Round(number, tuple(self._traces(second, counters))))
        job = Job(NAME, framework.hint, suspicion.seconds)
        snapshot = Snapshot(job, tuple(rounds), settings.interval_s if len(rounds) > 1 else None)
        machines = {machine.name: machine.ranks for machine in self._machines}
        layout = Layout(world_size=WORLD, sizes=framework.sizes, ranks_per_machine=self.per_machine, machines=machines)
        topology, _ = build(layout, snapshot.highest_rank())
        return diagnose(snapshot, topology)

    def _pass(self, counters: Mapping[int, _Counters], before: Second, after: Second) -> None:
        """The seconds between two looks pass; where the playing starts again in between, as many like the last one."""
        for rank, one in counters.items():
            if rank not in self.frozen:
                beats = after.recording.recording.beats[rank]
                same = before.recording is after.recording and before.beat < after.beat
                if same:
                    one.add(beats[before.beat], beats[after.beat], 0)
                else:
                    for _ in range(int(ServerSettings().interval_s)):
                        one.add(beats[after.beat - 1], beats[after.beat], 0)

    def _traces(self, second: Second, counters: Mapping[int, _Counters]) -> Collection[ProcessTrace]:
        """All processes of the job as they were looked at nearest to a second."""
        recording = second.recording.recording
        moment = recording.beats[0][second.beat].at
        found = [self._trace(rank, second, counters[rank]) for rank in range(WORLD)]
        for process in recording.processes:
            if process.role != TRAINER and process.rank not in self.frozen:
                look = min(process.looks, key=lambda look: abs(look.at - moment))
                if abs(look.at - moment) <= RECENT_S:
                    found.append(_counted_at(moment, process, recording.trace(process, look)))
        return found

    def _trace(self, rank: int, second: Second, counters: _Counters) -> ProcessTrace:
        playable, beat = self.frozen.get(rank, (second.recording, second.beat))
        process = playable.trainers[rank]
        trace = playable.recording.trace(process, process.looks[playable.look(rank, beat)])
        if trace.state is not None:
            state = structs.replace(trace.state, cpu_s=counters.cpu_s, ran_s=counters.ran_s, wakes=counters.wakes)
            trace = structs.replace(trace, state=state)
        return at_rest(trace) if rank in self.frozen else trace

    def _key(self, rank: int) -> Key:
        return 1000 + rank, self.start

    def _beat(self, rank: int, now: float) -> CpuSample:
        counters = self._counters[rank]
        return CpuSample(now, counters.ran_s, counters.queued_s, counters.wakes)

    def _is_new(self, rank: int, second: Second) -> bool:
        """Whether there was another look at it since the last one: on busy cores a look takes longer than a second."""
        if rank in self.frozen:
            return True
        look = id(second.recording), second.recording.look(rank, second.beat)
        new, self._taken[rank] = self._taken.get(rank) != look, look
        return new

    def _sample(self, rank: int, now: float, second: Second) -> StackSample:
        playable, beat = self.frozen.get(rank, (second.recording, second.beat))
        look = playable.trainers[rank].looks[playable.look(rank, beat)]
        counted = self._counters[rank]
        kept = playable.recording.states[look.state] if look.state >= 0 else None
        return StackSample(
            now,
            _state(playable, rank, look, rank in self.frozen),
            counted.io,
            ran_s=counted.ran_s,
            wakes=counted.wakes,
            dozes=kept is not None and kept.state == "S" and "nanosleep" in kept.wchan,
            helped_s=counted.below_s,
            helper_bytes=counted.helpers_io,
        )


def at_rest(trace: ProcessTrace) -> ProcessTrace:
    """The same stack, asleep for ever."""
    threads = tuple(Thread(one.name, one.tid, one.frames, False, False) for one in trace.threads)
    state = structs.replace(trace.state, state="S") if trace.state is not None else None
    return structs.replace(trace, threads=threads, state=state)


def _counted_at(moment: float, process: Process, trace: ProcessTrace) -> ProcessTrace:
    """A process below a trainer with its counters at a moment between two looks, which is taken to pass evenly."""
    before = max(
        (look for look in process.looks if look.at <= moment), key=lambda look: look.at, default=process.looks[0]
    )
    after = min((look for look in process.looks if look.at > moment), key=lambda look: look.at, default=before)
    if trace.state is None or after is before or None in (before.cpu_s, after.cpu_s):
        return trace
    share = max(0.0, (moment - before.at) / (after.at - before.at))

    def between(early: float | None, late: float | None) -> float:
        return (early or 0.0) + share * ((late or 0.0) - (early or 0.0))

    state = structs.replace(
        trace.state,
        cpu_s=between(before.cpu_s, after.cpu_s),
        ran_s=between(before.ran_s, after.ran_s),
        wakes=int(between(before.wakes, after.wakes)),
    )
    return structs.replace(trace, state=state)


_STATES: dict[tuple[int, int, float, bool], activity.RankState] = {}


def _state(playable: Playable, rank: int, look: Look, frozen: bool) -> activity.RankState:
    """What the agent reads of a look; each is read once, for hours are made of few looks."""
    key = id(playable), rank, look.at, frozen
    found = _STATES.get(key)
    if found is None:
        trace = playable.recording.trace(playable.trainers[rank], look)
        found = _STATES[key] = activity.read(at_rest(trace) if frozen else trace, packaged())
    return found
