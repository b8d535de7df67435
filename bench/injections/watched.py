"""A played job under the real watch: the agents' JobMonitor over rings and step lines, the server's StallTracker, the diagnosis."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from math import inf

from hangdog_agent.discovery.cpu_activity import CpuSample
from hangdog_agent.stalls.job_monitor import JobMonitor, Key
from hangdog_agent.stalls.progress.profiler_rings import RingSignal
from hangdog_agent.stalls.progress.progress_signal import ProgressSignal, SignalKind
from hangdog_agent.stalls.settings import StallSettings
from hangdog_agent.stalls.stack_motion import StackSample
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.observe import activity
from hangdog_models.planning.enough_rounds import enough
from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import Frame, ProcessState, ProcessTrace, Thread
from hangdog_models.stall_timeouts import ASKED_AGAIN_S, RECHECK_S
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Verdict
from hangdog_models.views.first_line import headline
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.settings import ServerSettings
from injections.chunks import MACHINES, PER_MACHINE, RANKS, Fault, Played, play
from injections.rings import device, moved, ring, shown

NAME = "played"
#: A fault is waited for so long: more than a rank at work is tolerated, and for a slow step as the job's past asks. Seconds.
BORNE_S = 400.0
#: Where hosts are while their devices train, and where a rank is that is late.
WAITS = ("<module> train.py", "train_step train.py", "synchronize torch/cuda/__init__.py")
LATE = ("<module> train.py", "train_step train.py", "draw_batch train.py")


@dataclass(frozen=True, slots=True)
class Told:
    """What became of one fault. `triggered_s` counts from the moment that it struck, `judged_s` from the trigger."""

    fault: Fault
    seed: int
    triggered_s: float | None
    judged_s: float | None
    verdict: Verdict | None

    @property
    def summary(self) -> str:
        if self.verdict is None:
            return "never triggered" if self.triggered_s is None else "slower, and not looked at here"
        first = self.verdict.suspects[0] if self.verdict.suspects else None
        return f"{headline(self.verdict)} {first.machines if first else ''}"


class _Machine:
    """One machine's agent: what it sees of its ranks each second."""

    def __init__(self, number: int, played: Played) -> None:
        self.name = f"node-{number}"
        self.ranks = tuple(Rank(number * PER_MACHINE + at) for at in range(PER_MACHINE))
        self.monitor = JobMonitor(StallSettings())
        self._played = played
        floor_s = StallSettings().suspicious_s
        self._rings = {rank: RingSignal(floor_s) for rank in self.ranks}
        self._lines = {rank: ProgressSignal(SignalKind.LINES, floor_s, authoritative=True) for rank in self.ranks}
        self._counts: dict[Rank, tuple[int, int]] = dict.fromkeys(self.ranks, (0, 0))

    def steps(self, rank: Rank) -> int:
        """How many steps were seen to end."""
        return self._counts[rank][1]

    def devices(self) -> dict[Rank, DeviceReadings | None]:
        """What the devices of its ranks were seen to do."""
        return {rank: signal.device for rank, signal in self._rings.items()}

    def second(self, now: float, late: Rank | None) -> None:
        """Takes what is to be seen now; `late` is a rank that reads a file before it launches anything."""
        for rank in self.ranks:
            _, across = ring(self._played, rank, now).communicators
            steps = bisect_right(self._played.steps[rank], now)
            come, made = self._counts[rank]
            self._rings[rank].look(moved(across) > come, now)
            oldest = min(across.in_flight, key=lambda one: one.order, default=None)
            self._rings[rank].fly(oldest.order if oldest else None, oldest.age_s if oldest else 0.0)
            self._lines[rank].look(steps > made, now, steps)
            if found := device(ring(self._played, rank, now)):
                self._rings[rank].find(*found)
            self._counts[rank] = moved(across), steps
        ran = {rank: (now if rank != late else 0.0) for rank in self.ranks}
        self.monitor.add_cpu_samples({_key(r): (r, CpuSample(now, ran[r], 0.0, int(ran[r]))) for r in self.ranks})
        self.monitor.add_signals({_key(rank): (self._rings[rank], self._lines[rank]) for rank in self.ranks})
        if wanted := self.monitor.wants(now):
            taken = {_key(r): StackSample(now, _state(r == late), 0, ran[r], int(ran[r])) for r in self.ranks}
            self.monitor.take({key: sample for key, sample in taken.items() if key in wanted})


def watch(fault: Fault, seed: int) -> Told:
    """Plays a job with one fault until it is judged, or until it has been borne for long enough."""
    played = play(fault, fault.at + BORNE_S, seed)
    machines = [_Machine(number, played) for number in range(MACHINES)]
    tracker, asked = StallTracker(), dict.fromkeys(range(MACHINES), -inf)
    running = {one.name: AnnouncedJob(NAME, one.ranks, RANKS) for one in machines}
    settings = ServerSettings()
    for now in map(float, range(1, int(fault.at + BORNE_S))):
        late = _late(fault, played, now)
        for one in machines:
            one.second(now, late)
            signs = one.monitor.signs(now)
            tracker.note(one.name, {NAME: signs} if signs else {}, now)
        if now >= fault.at and any(one.monitor.slowdown() for one in machines):
            return _slowed(fault, seed, played, machines, now)
        doubted = tracker.doubted()
        for number, one in enumerate(machines):
            if doubted and now - asked[number] >= ASKED_AGAIN_S:
                asked[number] = now
                one.monitor.ask(now + RECHECK_S)
        tracker.seen((NAME,), now)
        suspicion = tracker.suspicion(NAME, running, now) if doubted or tracker.learns(NAME) else None
        if suspicion is not None and tracker.due(NAME, suspicion, now):
            judged_s = (settings.rounds - 1) * settings.interval_s
            looks = [now + number * settings.interval_s for number in range(settings.rounds)]
            verdict = _judged(fault, played, looks, suspicion.seconds)
            return Told(fault, seed, now - fault.at, judged_s, verdict)
    return Told(fault, seed, None, None, None)


def _slowed(fault: Fault, seed: int, played: Played, machines: list[_Machine], begun: float) -> Told:
    """What the server makes of light looks at a job that became slower: it takes them until two verdicts in a row are sure."""
    settings = ServerSettings()
    rounds: list[Round] = []
    before: Verdict | None = None
    second, verdict = begun, None
    for number in range(settings.slow_rounds):
        now = begun + number * settings.slow_interval_s
        while second + 1.0 <= now:
            second += 1.0
            for one in machines:
                one.second(second, None)
        seen = {rank: (found, one.steps(rank)) for one in machines for rank, found in one.devices().items()}
        rounds.append(Round(number, tuple(_trace(rank, False, now, *seen[rank]) for rank in sorted(seen))))
        if number + 1 < settings.light_from:
            continue
        snapshot = Snapshot(Job(NAME), tuple(rounds), settings.slow_interval_s)
        verdict = diagnose(snapshot, _topology())
        if enough(before, verdict):
            break
        before = verdict
    return Told(fault, seed, begun - fault.at, now - begun, verdict)


def _judged(fault: Fault, played: Played, looks: list[float], stalled_s: float) -> Verdict:
    """What the server makes of its looks and of the rings that come with the last one."""
    rounds = tuple(
        Round(number, tuple(_trace(rank, rank == _late(fault, played, now), now) for rank in range(RANKS)))
        for number, now in enumerate(looks)
    )
    snapshot = Snapshot(
        Job(NAME, stalled_s=stalled_s), rounds, ServerSettings().interval_s, progress=shown(played, looks[-1])
    )
    return diagnose(snapshot, _topology())


@cache
def _topology() -> Topology:
    sizes = {"tp": PER_MACHINE, "dp": MACHINES}
    return build(Layout(world_size=RANKS, sizes=sizes, ranks_per_machine=PER_MACHINE), None)[0]


def _late(fault: Fault, played: Played, now: float) -> Rank | None:
    """The rank that has not launched what its peers have, while it has not."""
    if fault.kind != "delayed rank" or now < fault.at:
        return None
    ended = bisect_right(played.steps[fault.rank], now)
    begun = bisect_right(played.tensor[fault.rank], now, key=lambda one: one.enqueued)
    return Rank(fault.rank) if begun <= ended and now - played.steps[fault.rank][ended - 1] > 1.0 else None


def _trace(
    rank: int, late: bool, now: float, device: DeviceReadings | None = None, steps: int | None = None
) -> ProcessTrace:
    calls = [line.split() for line in (LATE if late else WAITS)]
    frames = tuple(Frame(name, file, 10 + at) for at, (name, file) in enumerate(calls))
    state = ProcessState(1000 + rank, "S" if late else "R", "", cpu_s=0.0 if late else now, steps=steps, device=device)
    return ProcessTrace(
        Rank(rank), pid=1000 + rank, threads=(Thread("MainThread", 1000 + rank, frames, not late, False),), state=state
    )


@cache
def _state(late: bool) -> activity.RankState:
    return activity.read(_trace(0, late, 0.0), packaged())


def _key(rank: Rank) -> Key:
    return 1000 + rank, 0
