"""Puts together what the agents of a job say of a standstill, and decides when it is asked after, and how often.

`now` is in seconds on a steady clock; nothing here waits or speaks.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from hangdog_models.backoff import pause
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import OVER_S, Patience, Sign, Suspicion, suspect
from hangdog_models.verdict import Kind
from hangdog_server.protocol.jobs import LocalJob

#: An open verdict is looked into again after so long, then after twice as long, and so on; and at most so rarely. Seconds.
AGAIN_S, SELDOM_S = 10.0, 600.0
#: Verdicts after which another look may say more.
OPEN = (Kind.UNDETERMINED, Kind.NONE)


@dataclass(frozen=True, slots=True)
class _Said:
    """What one machine said of a job's ranks, and when."""

    at: float
    signs: Mapping[Rank, Sign]


@dataclass(slots=True)
class _Matter:
    """One standstill of a job, from its first suspicion to its end."""

    seen: float
    asked: int = 0
    next: float = 0.0
    settled: bool = False


@dataclass(slots=True)
class Vigil:
    """What is known of the jobs' standstills."""

    patience: Patience = field(default_factory=Patience)
    _said: dict[str, dict[str, _Said]] = field(default_factory=dict)
    _matters: dict[str, _Matter] = field(default_factory=dict)

    def note(self, machine: str, signs: Mapping[str, Mapping[Rank, Sign]], now: float) -> None:
        """A machine said what its ranks show; of a job it does not name, they show nothing."""
        for said in self._said.values():
            said.pop(machine, None)
        for job, shown in signs.items():
            self._said.setdefault(job, {})[machine] = _Said(now, shown)
        self._said = {job: said for job, said in self._said.items() if said}

    def forget(self, machine: str) -> None:
        """A machine's agent is gone: what it said last may be true no longer."""
        self.note(machine, {}, 0.0)

    def doubted(self) -> tuple[str, ...]:
        """The jobs in which somebody is overdue: all their machines should look closer."""
        return tuple(
            job
            for job, said in self._said.items()
            if any(sign.overdue for one in said.values() for sign in one.signs.values())
        )

    def shows(self, job: str) -> bool:
        """Whether any rank of a job shows something, suspicious or not."""
        return job in self._said

    def suspicion(
        self, job: str, running: Mapping[str, LocalJob], now: float, mute: Collection[str] = ()
    ) -> Suspicion | None:
        """Whether a job stands still, by what the machines it runs on say of their own ranks.

        Those not connected say nothing against it, nor do those that are `mute`.
        """
        own = {machine: frozenset(local.ranks) for machine, local in running.items()}
        signs = {
            rank: replace(sign, seconds=sign.seconds + now - one.at)
            for machine, one in self._said.get(job, {}).items()
            for rank, sign in one.signs.items()
            if rank in own.get(machine, ())
        }
        awake = (local for machine, local in running.items() if machine not in mute)
        going = (rank for local in awake for rank in local.ranks if rank not in signs)
        return suspect(signs, going, self.patience)

    def due(self, job: str, suspicion: Suspicion | None, now: float) -> bool:
        """Whether to ask after a job now: at the first suspicion, and again while the verdict stays open."""
        matter = self._matters.get(job)
        if suspicion is None:
            if matter is not None and now - matter.seen >= OVER_S:
                del self._matters[job]
            return False
        if matter is None:
            # a job that was killed while it hung is never seen to move again
            self._matters = {name: one for name, one in self._matters.items() if now - one.seen < SELDOM_S}
            matter = self._matters[job] = _Matter(now, next=now)
        matter.seen = now
        return not matter.settled and now >= matter.next

    def asked(self, job: str, verdict: Kind | None, now: float) -> None:
        """An incident of this job ended with that verdict, or failed."""
        matter = self._matters.get(job)
        if matter is not None:
            matter.settled = verdict is not None and verdict not in OPEN
            matter.next = now + pause(matter.asked, AGAIN_S, SELDOM_S)
            matter.asked += 1
