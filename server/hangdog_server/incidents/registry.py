"""Takes requests in: finds the job that is meant, starts its incident or joins the one that runs."""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

from hangdog_models.counts import counted, named
from hangdog_models.errors import ServerUnreachable, WrongUse
from hangdog_models.incident import UNFINISHED, Incident, IncidentState
from hangdog_models.snapshot import Job
from hangdog_models.verdict import from_json
from hangdog_server.cluster.leadership import Leading
from hangdog_server.incidents.episode.same_stall import FurtherLook, SameStall, Seen
from hangdog_server.incidents.gather import RoundPlan
from hangdog_server.incidents.incident_run import IncidentRequest, IncidentRun, IncidentServices, new_name
from hangdog_server.incidents.resume import Cut
from hangdog_server.incidents.round_capture import RoundCapture, steady
from hangdog_server.incidents.rounds import IncidentSubject
from hangdog_server.progress import ProgressUpdate
from hangdog_server.protocol.jobs import describe, sole
from hangdog_server.protocol.rejections import RejectedCapture, Rejection
from hangdog_server.settings import ServerSettings
from hangdog_server.store.offline_captures import Spooled
from hangdog_server.store.store_errors import StoreFailed

log = logging.getLogger(__name__)


class IncidentRegistry:
    """The running incidents, at most one of each job: whoever asks while one runs follows it."""

    def __init__(
        self,
        services: IncidentServices,
        settings: ServerSettings,
        leading: Leading,
        seen: Seen = lambda job: ("", 0.0),
    ) -> None:
        """`seen` tells of the standstills that this server sees."""
        self._services = services
        self._same = SameStall(services, seen)
        self._leading = leading
        self._settings = settings
        self._running: dict[str, IncidentRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, request: IncidentRequest) -> AsyncIterator[ProgressUpdate]:
        """The steps of the incident this request starts or joins; raises HangdogError when it is refused or fails."""
        job = self._which(request.job)
        await self._leading.require(job)
        if job not in self._running:
            await self._take_up_of(job)
        inquiry = self._running.get(job)
        before = await self._same.of(request, job) if inquiry is None else None
        inquiry = self._running.get(job)
        if isinstance(before, Incident):
            yield ProgressUpdate(before.id, before.state, f"{before.kind}, as it was judged before", before.verdict)
            return
        if inquiry is None:
            inquiry = self._start(replace(request, job=self._which(job)), before)  # its machines may be gone by now
        else:
            if request.suspected:
                inquiry.hurry()
            ago = self._services.clock() - inquiry.began
            yield ProgressUpdate(
                inquiry.name, IncidentState.SUSPECTED, f"following the incident somebody asked for {ago:.0f} s ago"
            )
        async for step in inquiry.follow():
            yield step

    def leads(self) -> frozenset[str]:
        """The jobs whose incidents are under way."""
        return frozenset(self._running)

    async def take_up(self, incident: Incident) -> None:
        """Goes on with an incident that its server's end cut short, unless it is under way here; raises StoreFailed."""
        if incident.id in self._tasks or (await self._services.store.find(incident.id)).state not in UNFINISHED:
            return  # it may have come to its end since it was found open
        if incident.job in self._running:
            later = f"taken over by incident {self._running[incident.job].name} of the same job"
            await self._services.store.move(incident.id, IncidentState.FAILED, self._services.clock(), later)
            return
        cut = Cut(incident, *await self._services.store.recall(incident.id))
        if incident.job in self._running:  # somebody asked for the job meanwhile
            return
        log.warning("incident %s of job %s: resumed", incident.id, incident.job)
        request = IncidentRequest(incident.job, why=incident.why, light=bool(cut.asked.get("light")))
        self._led(IncidentRun(cut, request, self._services, self._settings), incident.job)

    async def _take_up_of(self, job: str) -> None:
        """Goes on with what another server left of a job, before anything new is begun."""
        for incident in await self._services.store.open():
            if incident.job == job and incident.state in UNFINISHED:
                await self.take_up(incident)

    def give_up(self, job: str) -> None:
        """Ends the incident of a job here: another server leads it."""
        if job in self._running:
            self._tasks[self._running[job].name].cancel(f"another server leads job {job} now")

    def captures(self) -> Iterator[RoundCapture]:
        """The captures that are under way."""
        return (inquiry.capture for inquiry in self._running.values() if inquiry.capture is not None)

    def capture_of(self, order: str) -> RoundCapture | Rejection:
        """The capture that takes in the answers to this order, or why none does."""
        inquiry = self._asked_by(order)
        if inquiry is None:
            return _nobody(order)
        return inquiry.capture or Rejection(RejectedCapture.LATE, f"order {order[:40]!r} is of before the server's end")

    def unawaited(self, order: str) -> str:
        """Why an answer to this order need not even be read; empty when somebody waits for it."""
        return "" if self._asked_by(order) is not None else _nobody(order)

    def _asked_by(self, order: str) -> IncidentRun | None:
        name = order.partition("/")[0]  # an incident's later orders bear its name, and what they are
        for inquiry in self._running.values():  # asked for every look
            if inquiry.name == name:
                return inquiry
        return None

    def now(self) -> float:
        """Unix seconds, by the clock of the server's main module."""
        return self._services.clock()

    async def close(self) -> None:
        """Stops leading; whoever takes the store up next goes on with what is unfinished."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # a task cancelled before it began raises

    def _which(self, wanted: str) -> str:
        """The job that is meant; raises WrongUse when there is none, or several and nobody said which."""
        fleet, jobs = self._services.fleet, self._services.fleet.jobs()
        known = f"known jobs: {named(jobs)}" if jobs else "no connected machine runs a job; start hangdog-agent on each"
        if wanted in jobs:
            return wanted
        if wanted:
            gone = fleet.absent(wanted, steady())
            where = f": it ran on {named(gone)}, whose agents are gone" if gone else ""
            raise WrongUse(f"no connected machine runs job {wanted}{where}", known, code="no-such-job")
        if not jobs:
            raise WrongUse("no job is known", known, code="no-such-job")
        if len(jobs) > 1:
            raise WrongUse(f"several jobs are known: {named(jobs)}", "name one with --job", code="ambiguous-job")
        return jobs[0]

    async def went_on(self, name: str, stood_s: float) -> None:
        """The job of an incident went on after so many seconds: noted and counted, once; raises StoreFailed."""
        store = self._services.store
        if name in store.unwritten:
            raise StoreFailed(
                f"incident {name} is not written yet", "it is noted as soon as it is", code="store-unavailable"
            )
        if (how := await store.went_on(name, stood_s)) is not None:
            self._services.telemetry.count(how)
            log.info("incident %s: the job went on after %.0f s", name, stood_s)

    async def crash_of(self, job: str, stood_s: float) -> Incident | None:
        """The crash of a job that has stood still for so long: it was then, or shortly before."""
        since, store = self.now() - stood_s - self._settings.near_s, self._services.store
        try:
            name = await Spooled(store).crash(job, since)
            return await store.find(name) if name is not None else None
        except StoreFailed as error:  # a job that hangs is looked at all the same
            log.error("job %s: cannot tell whether it crashed before: %s", job, error)
            return None

    async def hang_after(self, crash: Incident, words: str) -> bool:
        """Whether a job stands still because of its crash: who failed first is not there again. Then the crash tells of it.

        One that is not judged yet may be: nothing is opened beside it.
        """
        if crash.state is not IncidentState.JUDGED:
            return crash.state is not IncidentState.FAILED
        here = {rank for local in self._services.fleet.asked(crash.job).values() for rank in local.ranks}
        try:
            first = from_json(json.loads(crash.verdict)).crash
        except (ValueError, KeyError, TypeError):  # of another version of ours
            return False
        if first is None or first.rank is None or first.rank in here:
            return False
        if not crash.note:
            log.warning("incident %s: job %s is stalled after its crash: %s", crash.id, crash.job, words)
            try:
                await Spooled(self._services.store).note(crash.id, f"after the crash {words}")
            except StoreFailed as error:  # it is noted when the job is asked after again
                log.error("incident %s: the stall of its job is not stored: %s", crash.id, error)
        return True

    def _start(self, request: IncidentRequest, before: FurtherLook | None) -> IncidentRun:
        running = len(self._running)
        if running >= self._settings.max_running:
            raise ServerUnreachable(
                f"{counted(running, 'incident')} {'is' if running == 1 else 'are'} being captured",
                "try again in a minute",
                code="server-busy",
            )
        rounds, interval_s = self._looks(request)
        again, first = (before.incident, before.first) if before else (None, 0)
        job_toml = request.job_toml or (before.job_toml if before else "")
        describe(request.job, job_toml, {}, {})  # an unreadable job.toml is refused before anybody is asked
        fleet = self._services.fleet
        asked, absent = fleet.asked(request.job), fleet.absent(request.job, steady())
        plan = RoundPlan(
            order=again.id if again is not None else new_name(),
            job=Job(request.job, stalled_s=request.stood_s or None),
            rounds=rounds,
            interval_s=interval_s,
            asked={machine: local.ranks for machine, local in asked.items()},
            absent={machine: local.ranks for machine, local in absent.items()},
            patience_s=self._settings.patience_s,
            rejoin_s=self._settings.rejoin_s,
            world=sole({local.world_size for local in asked.values()}),
        )
        about = IncidentSubject(plan, {**absent, **asked}, job_toml, request.light, first=first, again=again)
        return self._led(IncidentRun(about, request, self._services, self._settings), request.job)

    def _led(self, inquiry: IncidentRun, job: str) -> IncidentRun:
        """Has an incident led from here on, as the one of its job."""

        async def lead() -> None:
            try:
                await inquiry.lead()
            finally:
                del self._running[job]
            await inquiry.settle()

        self._running[job] = inquiry
        task = asyncio.create_task(lead(), name=f"incident {inquiry.name}")
        self._tasks[inquiry.name] = task
        task.add_done_callback(lambda _: self._tasks.pop(inquiry.name))
        return inquiry

    def _looks(self, request: IncidentRequest) -> tuple[int, float]:
        settings = self._settings
        usual = (
            (settings.light_rounds, settings.light_interval_s)
            if request.light
            else (settings.rounds, settings.interval_s)
        )
        rounds, interval_s = request.rounds or usual[0], request.interval_s or usual[1]
        if rounds > settings.max_rounds:
            raise WrongUse(
                f"{rounds} looks are too many", f"ask for {settings.max_rounds} at most", code="out-of-range"
            )
        if not (math.isfinite(interval_s) and 0 < interval_s <= settings.max_interval_s):
            raise WrongUse(
                f"{interval_s:g} s is no pause between looks",
                f"give up to {settings.max_interval_s:g} s",
                code="out-of-range",
            )
        return rounds, interval_s


def _nobody(order: str) -> Rejection:
    return Rejection(RejectedCapture.LATE, f"no incident waits for order {order[:40]!r}: it is over, or never was")
