"""Puts together what the agents of a job say of a standstill, and decides when it is asked after, and how often.

`now` is in seconds on a steady clock; nothing here waits or speaks.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from hangdog_models.backoff import pause
from hangdog_models.phase_history import PastPhases, PhaseHistory
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import OVER_S, Doing, Sign, StallTimeouts, Suspicion, suspect
from hangdog_models.verdict import Kind
from hangdog_server.cluster.communicators import Communicators
from hangdog_server.cluster.job_activity import JobActivity, RankMotion
from hangdog_server.cluster.slow_jobs import SlowJobs
from hangdog_server.cluster.step_paces import StepPaces
from hangdog_server.protocol.jobs import AnnouncedJob

#: An open verdict is looked into again after so long, then after twice as long, and so on; and at most so rarely. Seconds.
AGAIN_S, SELDOM_S = 10.0, 600.0
#: Jobs whose phases are remembered, beyond those that run: the ones seen last.
REMEMBERED = 10_000
#: What a rank does that does not get on. The others compile, write, or are at one place now and at another then.
STUCK = frozenset({Doing.STILL, Doing.LOOPING})
#: Verdicts after which another look may say more, where they name nobody to evict. A rank's own code that is slow may be a
#: healthy phase, or work that never ends: only time tells. What holds a whole group up may show later, as data that stays unacknowledged.
OPEN = (Kind.UNDETERMINED, Kind.NONE, Kind.SLOW, Kind.GROUP)
#: What a rank gets on with while others wait for it.
WORKS = (Doing.COMPILING, Doing.WRITING, Doing.WORKING, Doing.HELPED)
#: A verdict that is less sure knows who holds the job up, and not why.
UNSURE = 0.5


def may_change(kind: str, confidence: float) -> bool:
    """Whether another look may say more than a verdict that names nobody to evict."""
    return kind in OPEN or confidence < UNSURE


@dataclass(frozen=True, slots=True)
class _StallReport:
    """What one machine said of a job's ranks, and when."""

    at: float
    signs: Mapping[Rank, Sign]


@dataclass(slots=True)
class _StallEpisode:
    """One standstill of a job, from its first suspicion to its end."""

    seen: float
    asked: int = 0
    next: float = 0.0
    settled: bool = False


@dataclass(slots=True)
class StallTracker:
    """What is known of the jobs' standstills."""

    patience: StallTimeouts = field(default_factory=StallTimeouts)
    #: What they say of jobs that go on, and are slower.
    slow: SlowJobs = field(default_factory=SlowJobs)
    #: How many ranks of each job moved, over the last half hour.
    activity: JobActivity = field(default_factory=JobActivity)
    #: What they say of the time of a step.
    paces: StepPaces = field(default_factory=StepPaces)
    #: What they say of communicators.
    communicators: Communicators = field(default_factory=Communicators)
    _reports: dict[str, dict[str, _StallReport]] = field(default_factory=dict)
    _moving: dict[str, dict[str, Collection[Rank]]] = field(default_factory=dict)
    # since when a job is seen to move while none of its ranks shows anything
    _moving_since: dict[str, float] = field(default_factory=dict)
    _episodes: dict[str, _StallEpisode] = field(default_factory=dict)
    # the one seen last is the last one
    _histories: dict[str, PhaseHistory] = field(default_factory=dict)

    def note(
        self,
        machine: str,
        signs: Mapping[str, Mapping[Rank, Sign]],
        now: float,
        moving: Mapping[str, Collection[Rank]] = MappingProxyType({}),
    ) -> None:
        """A machine said what its ranks show, and which are `moving`; of a job it does not name, they show nothing."""
        self._withdraw(machine)
        for job, shown in signs.items():
            self._reports.setdefault(job, {})[machine] = _StallReport(now, shown)
        for job, ranks in moving.items():
            self._moving.setdefault(job, {})[machine] = ranks
        self._moving_since = {job: self._moving_since.get(job, now) for job in self._moving if job not in self._reports}

    def moves(self, job: str, mute: Collection[str] = ()) -> int:
        """How many ranks of a job are seen to move, by machines that are not `mute`."""
        return sum(len(ranks) for machine, ranks in self._moving.get(job, {}).items() if machine not in mute)

    def moving_s(self, job: str, now: float) -> float:
        """For how long a job has been seen to move while none of its ranks showed anything; 0 where it is not."""
        since = self._moving_since.get(job)
        return max(0.0, now - since) if since is not None else 0.0

    def works(self, job: str) -> bool:
        """Whether a rank of a job, for which others may wait, is seen to get on with something."""
        reports = self._reports.get(job, {}).values()
        return any(sign.doing in WORKS and not sign.overdue for one in reports for sign in one.signs.values())

    def forget(self, machine: str) -> None:
        """A machine's agent is gone: what it said last may be true no longer."""
        self._withdraw(machine)
        self._moving_since = {job: since for job, since in self._moving_since.items() if job in self._moving}
        self.slow.forget(machine)
        self.paces.forget(machine)
        self.communicators.forget(machine)

    def _withdraw(self, machine: str) -> None:
        for stated in self._reports.values():
            stated.pop(machine, None)
        for moving in self._moving.values():
            moving.pop(machine, None)
        self._reports = {job: report for job, report in self._reports.items() if report}
        self._moving = {job: stated for job, stated in self._moving.items() if stated}

    def doubted(self) -> tuple[str, ...]:
        """The jobs in which somebody is overdue: all their machines should look closer."""
        return tuple(
            job
            for job, stated in self._reports.items()
            if any(sign.overdue for one in stated.values() for sign in one.signs.values())
        )

    def seen(self, jobs: Collection[str], now: float) -> None:
        """These jobs run: what they are seen to survive is learned from now on, and kept when they start again."""
        for job in jobs:
            history = self._histories.pop(job) if job in self._histories else PhaseHistory(now)
            self._histories[job] = history
        for job in tuple(self._histories)[: max(0, len(self._histories) - len(jobs) - REMEMBERED)]:
            del self._histories[job]

    def recall(self, job: str, past: PastPhases, now: float) -> None:
        """Takes up what was kept of a job from before this server watched it."""
        self._histories.setdefault(job, PhaseHistory(now)).recall(past, now)

    def learned(self) -> frozenset[str]:
        """The jobs of which more is known than was `taken`."""
        return frozenset(job for job, history in self._histories.items() if history.learned)

    def taken(self, jobs: Collection[str], now: float) -> dict[str, PastPhases]:
        """What is worth keeping of these jobs; `unkept` takes those back that could not be kept."""
        found = {job: self._histories[job] for job in jobs if job in self._histories}
        for history in found.values():
            history.learned = False
        return {job: history.past(self.patience, now) for job, history in found.items()}

    def unkept(self, jobs: Collection[str]) -> None:
        """What was taken of these jobs could not be kept: later."""
        for job in jobs:
            if job in self._histories:
                self._histories[job].learned = True

    def learns(self, job: str) -> bool:
        """Whether somebody of this job is in a phase, or was just now: its length and its end are to be noticed."""
        history = self._histories.get(job)
        if history is not None and history.under_way:
            return True
        reports = self._reports.get(job, {}).values()
        return any(sign.doing is not Doing.STILL for one in reports for sign in one.signs.values())

    def shows(self, job: str) -> bool:
        """Whether any rank of a job shows something, suspicious or not."""
        return job in self._reports

    def motion(self, job: str, running: Mapping[str, AnnouncedJob], mute: Collection[str] = ()) -> RankMotion:
        """How many ranks of a job move by what their machines say; those of `mute` machines are not seen."""
        reports = self._reports.get(job, {})
        moving = still = unseen = 0
        for machine, local in running.items():
            if machine in mute:
                unseen += len(local.ranks)
                continue
            signs = reports[machine].signs if machine in reports else {}
            stuck = sum(signs[rank].doing in STUCK for rank in local.ranks if rank in signs)
            still += stuck
            moving += len(local.ranks) - stuck
        return RankMotion(moving, still, unseen)

    def suspicion(
        self, job: str, running: Mapping[str, AnnouncedJob], now: float, mute: Collection[str] = ()
    ) -> Suspicion | None:
        """Whether a job stands still, by what the machines it runs on say of their own ranks.

        Those not connected say nothing against it, nor do those that are `mute`. What the job is seen to survive is learned.
        """
        history = self._histories.setdefault(job, PhaseHistory(now))
        own = {machine: frozenset(local.ranks) for machine, local in running.items()}
        history.watch(self._signs(job, own, now), own)
        return self.seems(job, running, now, mute)

    def seems(
        self, job: str, running: Mapping[str, AnnouncedJob], now: float, mute: Collection[str] = ()
    ) -> Suspicion | None:
        """The same for whoever only looks: nothing is learned, and what is to be recalled of a job is not begun without it."""
        reports = self._reports.get(job, {})
        own = {machine: frozenset(running[machine].ranks) for machine in reports if machine in running}
        signs = self._signs(job, own, now)
        awake = (local for machine, local in running.items() if machine not in mute)
        going = (rank for local in awake for rank in local.ranks if rank not in signs)
        history = self._histories.get(job) or PhaseHistory(now)
        return suspect(signs, going, lambda sign: history.bears(sign, self.patience, now))

    def _signs(self, job: str, own: Mapping[str, Collection[Rank]], now: float) -> dict[Rank, Sign]:
        """What the machines of a job say of their own ranks, as long as it lasts by now."""
        return {
            rank: replace(sign, seconds=sign.seconds + now - one.at)
            for machine, one in self._reports.get(job, {}).items()
            for rank, sign in one.signs.items()
            if rank in own.get(machine, ())
        }

    def due(self, job: str, suspicion: Suspicion | None, now: float) -> bool:
        """Whether to ask after a job now: at the first suspicion, and again while the verdict stays open."""
        episode = self._episodes.get(job)
        if suspicion is None:
            if episode is not None and now - episode.seen >= OVER_S:
                del self._episodes[job]
            return False
        if episode is None:
            # a job that was killed while it hung is never seen to move again
            self._episodes = {name: one for name, one in self._episodes.items() if now - one.seen < SELDOM_S}
            episode = self._episodes[job] = _StallEpisode(now, next=now)
        episode.seen = now
        return not episode.settled and now >= episode.next

    def asked(self, job: str, verdict: Kind | None, now: float, evicts: bool = False, confidence: float = 1.0) -> None:
        """A look at this job ended with that verdict, or failed; `evicts`: the verdict names machines to evict."""
        episode = self._episodes.get(job)
        if episode is not None:
            episode.settled = verdict is not None and (evicts or not may_change(verdict, confidence))
            episode.next = now + pause(episode.asked, AGAIN_S, SELDOM_S)
            episode.asked += 1
