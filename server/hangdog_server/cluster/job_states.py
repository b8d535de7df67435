"""How every job is now, put together from what its machines say, what is seen of it, and its latest incidents."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hangdog_models.errors import WrongUse
from hangdog_models.incident import Incident
from hangdog_models.views.job_state import JobCondition, JobFacts, JobState, job_state, severity
from hangdog_server.cluster.communicators import JobCommunicators, put_together
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.job_activity import RankMotion
from hangdog_server.cluster.session_tracker import SessionTracker
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.etag import digest
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed

#: The communicators of a job are put together no more often. Seconds.
FRESH_S = 1.0


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job that runs, or whose agents are gone: on how many machines, how many ranks, and how it is."""

    name: str
    machines: int
    ranks: int
    state: JobState


def jobs_mark(jobs: Iterable[KnownJob]) -> str:
    """Others once any of the jobs is; not where words only count seconds: a page that showed each of them would never rest."""
    counting = (JobCondition.SUSPECTED, JobCondition.SLOWER)
    shown = [(one.name, one.machines, one.ranks, one.state) for one in jobs]
    return digest([
        (*job, state.condition, state.incident, "" if state.condition in counting else state.text) for *job, state in shown
    ])  # fmt: skip


class JobStates:
    """Says it for pages, commands and notices; `clock` gives Unix seconds, `steady` those of the clock of the watch."""

    def __init__(
        self,
        fleet: Fleet,
        monitor: StallTracker,
        seen: SessionTracker,
        store: Store,
        clock: Callable[[], float],
        steady: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._stalls = monitor
        self._seen = seen
        self._store = store
        self._clock = clock
        self._steady = steady
        self._latest: Mapping[str, tuple[Incident, ...]] = {}
        self._lock = asyncio.Lock()
        self._asked = self._answered = 0
        self._known: tuple[KnownJob, ...] = ()
        self._joining = asyncio.Lock()
        #: The communicators of jobs, each until when they are answered again.
        self._joined: dict[str, tuple[float, JobCommunicators]] = {}

    async def known(self) -> tuple[KnownJob, ...]:
        """Every job that is known now, the worst first; while the store is away, by the incidents that it told of last.

        Whoever asks while an answer is made waits for the next one, and all of them share it.
        """
        asked = self._asked = self._asked + 1
        async with self._lock:
            if self._answered < asked:
                self._answered = self._asked
                self._known = await self._looked()
            return self._known

    async def _looked(self) -> tuple[KnownJob, ...]:
        names = tuple(dict.fromkeys((*self._fleet.jobs(), *self._seen.silent())))
        with contextlib.suppress(StoreFailed):
            self._latest = await self._store.of_jobs(names)
        found = []
        for name in names:
            found.append(self._job(name, self._latest.get(name, ())))
            await asyncio.sleep(0)  # a large cluster takes some time, and agents wait meanwhile
        return tuple(sorted(found, key=lambda one: (severity(one.state), one.name)))

    def activity(self, name: str) -> tuple[RankMotion | None, ...]:
        """How many of its ranks moved over the last half hour; empty of a job that this server did not watch."""
        return self._stalls.activity.strip(name, self._steady())

    async def communicators(self, name: str) -> JobCommunicators:
        """How its communicators go on, as they were put together a moment ago; raises WrongUse where no connected machine runs it.

        However many look and however large the job is, a tenth of the time goes into it at most, and no agent waits for it.
        """
        if not self._fleet.asked(name):
            raise WrongUse(
                f"no connected machine runs job {name[:100]!r}",
                "hangdog jobs lists those that run; so does the page /jobs",
                code="no-such-job",
            )
        async with self._joining:
            began = self._steady()
            self._joined = {job: one for job, one in self._joined.items() if began < one[0]}
            if name not in self._joined:
                # what a silent machine told last would have a communicator move for ever
                reported = self._stalls.communicators.reported(name, self._fleet.awake(name, began))
                found = await asyncio.to_thread(put_together, reported, began)
                ended = self._steady()
                self._joined[name] = ended + max(FRESH_S, 10 * (ended - began)), found
            return self._joined[name][1]

    def _job(self, name: str, incidents: Sequence[Incident]) -> KnownJob:
        clock, running = self._steady(), self._fleet.asked(name)
        absent, mute = self._fleet.absent(name, clock), self._fleet.mute(name, clock)
        ranks = sum(len(local.ranks) for local in running.values())
        lost = sorted({*absent, *mute})
        slow = self._stalls.slow.slow(clock).get(name)
        facts = JobFacts(
            now=self._clock(),
            here=bool(running),
            began=self._seen.started(name),
            lost=lost,
            ranks=ranks,
            moving=self._stalls.moves(name, mute),
            moving_s=self._stalls.moving_s(name, clock),
            works=self._stalls.works(name),
            suspicion=self._stalls.seems(name, running, clock, mute) if running else None,
            slower=slow.why if slow is not None else "",
            incidents=incidents,
        )
        there = ranks + sum(len(local.ranks) for local in absent.values())
        return KnownJob(name, len(running) + len(absent), there, job_state(facts))
