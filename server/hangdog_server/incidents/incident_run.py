"""Leads one incident from its request to its verdict: capture everywhere at once, gather, judge, remember, answer.

Each state is in the store before its step begins. An incident lives on when whoever asked for it hangs up, and when its
server ends: the next one takes it up.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hangdog_models.counts import counted, named
from hangdog_models.errors import HangdogError, OurFault, ServerUnreachable
from hangdog_models.incident import Incident, IncidentState
from hangdog_models.verdict import Verdict, to_json
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.logs import log_context
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents import resume
from hangdog_server.incidents.capture_archive import Archive
from hangdog_server.incidents.gc_freeze import spared
from hangdog_server.incidents.incident_memory import IncidentMemory
from hangdog_server.incidents.judge import Judge
from hangdog_server.incidents.resume import Cut
from hangdog_server.incidents.round_capture import RoundCapture, steady
from hangdog_server.incidents.rounds import CaptureRounds, IncidentSubject
from hangdog_server.progress import ProgressStream, ProgressUpdate
from hangdog_server.settings import ServerSettings
from hangdog_server.store.leases import NotOurs
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.telemetry import SILENT, IncidentStage, Origin, Telemetry

#: Between two attempts to store what an incident ended with, while the store is away. Seconds.
AGAIN_S = 2.0
#: Bytes of randomness in an incident's name: 12 hexadecimal digits do not repeat within a million incidents.
NAME_BYTES = 6
#: How the note begins of an incident that is shown and not written.
UNWRITTEN = "not written yet, and nothing is done to machines for it"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IncidentRequest:
    """What somebody asks for; 0 and empty stand for the server's own choice.

    `stood_s`: for how long the job had not got on when it was suspected; 0: nobody says. `again`: the incident of the same
    stall, into which a further look goes, where that is known.
    """

    job: str = ""
    rounds: int = 0
    interval_s: float = 0.0
    job_toml: str = ""
    why: str = ""
    light: bool = False
    suspected: bool = False
    stood_s: float = 0.0
    again: str = ""

    def origin(self) -> Origin:
        """Who wants it, as it is timed."""
        return Origin.LIGHT if self.light else Origin.SUSPECTED if self.suspected else Origin.ASKED


@dataclass(frozen=True, slots=True)
class IncidentServices:
    """What incidents are led with. `clock` gives Unix seconds; deadlines run on the event loop's own, steady clock.

    `judged` is set when a verdict is stored.
    """

    fleet: Fleet
    store: Store
    judge: Judge
    clock: Callable[[], float]
    dictionary: PieceCache = field(default_factory=PieceCache)
    telemetry: Telemetry = SILENT
    judged: asyncio.Event = field(default_factory=asyncio.Event)


class IncidentRun:
    """A running incident: `lead` it once, `follow` it as often as people ask, then `settle` it."""

    def __init__(
        self,
        what: IncidentSubject | Cut,
        request: IncidentRequest,
        services: IncidentServices,
        settings: ServerSettings,
    ) -> None:
        """`what` is asked of whom, or was by a server that ended meanwhile."""
        self.name, self._job = (
            (what.incident.id, what.incident.job) if isinstance(what, Cut) else (what.plan.order, what.plan.job.id)
        )
        self.began = what.incident.began if isinstance(what, Cut) else services.clock()
        #: The incident as it was judged before, where this is a further look at the same stall. It stays judged, and as it
        #: is, until there is another verdict: what a server's end cuts short is not taken up, and nothing that was told is lost.
        self._before = None if isinstance(what, Cut) else what.again
        self._what = what
        self._stood_s = float(what.asked.get("stood_s", 0.0)) if isinstance(what, Cut) else request.stood_s
        self._request = request
        self._services = services
        self._settings = settings
        self._rounds: CaptureRounds | None = None
        self._progress = ProgressStream()
        self._unstored: Callable[[], Awaitable[None]] | None = None
        self._archive: Archive | None = None
        self._unbegun: tuple[Incident, dict[str, Any]] | None = None
        self._memory = IncidentMemory(services.judge, services.store, self.name, self._user)

    def follow(self) -> AsyncIterator[ProgressUpdate]:
        """All steps from the first to the last, as they are said; raises what the incident failed of."""
        return self._progress.follow()

    @property
    def capture(self) -> RoundCapture | None:
        """What takes in the answers of agents, and who of them comes and goes; none before anybody is asked."""
        return self._rounds.capturing if self._rounds is not None else None

    @property
    def _user(self) -> str:
        """Whose job it is; empty where that is not known, as when nobody is back yet after a server's end."""
        return self._services.fleet.whose(self._job)[1].user

    async def lead(self) -> None:
        """Leads the incident to its end; whatever goes wrong is said and remembered, and ends here."""
        services = self._services
        with (
            services.telemetry.incident(self.name, self._job),
            log_context(incident=self.name, job=self._job),
            spared(),
        ):
            await self._led()

    def hurry(self) -> None:
        """No further light look is waited for: the job stands still by now, and is to be looked at for that."""
        if self._rounds is not None:
            self._rounds.hurried.set()

    async def settle(self) -> None:
        """Has the store know how the incident ended, should it have been away then."""
        while self._unstored is not None:
            await asyncio.sleep(AGAIN_S)
            try:
                await self._unstored()
            except NotOurs:
                self._services.store.unwritten.pop(self.name, None)
                return
            except StoreFailed as error:
                log.error("incident %s: its end is still not stored: %s", self.name, error)
            else:
                self._unstored = None
                self._services.store.unwritten.pop(self.name, None)
                log.info("incident %s is stored now", self.name)

    async def _led(self) -> None:
        try:
            await self._through()
        except HangdogError as error:
            await self._fail(error)
        except asyncio.CancelledError as cut:  # the store does not hear of it: whoever takes the store up goes on
            stopped = str(cut) or "the server stopped before there was a verdict"
            code = "not-the-leader" if str(cut) else "server-stopped"
            self._end(ServerUnreachable(stopped, "the next server continues the incident", code=code))
        except Exception as error:  # a bug of ours must not leave an incident that looks as if it were still running
            log.exception("incident %s failed", self.name)
            what = f"incident {self.name} failed: {type(error).__name__}: {error}"
            await self._fail(OurFault(what, "this is a bug in hangdog; the server's log says more", code="bug"))
        finally:
            self._progress.end()

    async def _through(self) -> None:
        began = steady()
        what = self._what
        recall = asyncio.create_task(self._memory.recall(self._services.clock()), name=f"history of {self.name}")
        try:
            verdict = await (self._taken_up(what) if isinstance(what, Cut) else self._begun(what))
        finally:
            recall.cancel()
        with self._services.telemetry.stage(IncidentStage.STORING):
            unstored = await self._remember(verdict)
        self._services.telemetry.lasted(self._request.origin(), steady() - began)
        self._say(IncidentState.JUDGED, f"{verdict.kind}{unstored}", json.dumps(to_json(verdict)))
        log.info("incident %s of job %s: %s", self.name, self._job, verdict.kind)

    async def _begun(self, about: IncidentSubject) -> Verdict:
        """From the first look on."""
        rounds = self._looks(about)
        if self._before is not None:
            look = f"look {self._before.looks + 1} at the same stall"
            self._say(IncidentState.SUSPECTED, f"incident {self.name} of job {self._job}, {look}")
            return await self._looked(rounds, about)
        incident = Incident(self.name, self._job, self.began, self._request.why)
        unwritten = await self._begin(incident, self._asked(rounds))
        self._services.telemetry.count(IncidentState.SUSPECTED)
        self._say(IncidentState.SUSPECTED, f"incident {self.name} of job {self._job}{unwritten}")
        return await self._looked(rounds, about)

    async def _taken_up(self, cut: Cut) -> Verdict:
        """From where the server before ended."""
        services, store = self._services, self._services.store
        self._say(IncidentState.SUSPECTED, f"incident {self.name} of job {self._job}, which the server's end cut short")
        if cut.attempt >= resume.ATTEMPTS:
            words = f"the server ended {cut.attempt + 1} times while it led this incident"
            raise ServerUnreachable(words, resume.KEPT, code="server-stopped")
        asked: Mapping[str, object] = {**cut.asked, "attempt": cut.attempt + 1}
        await store.remember(self.name, asked)
        if cut.unanswered():
            recent = abs(services.clock() - self.began) <= self._settings.resumed_s
            if recent and await resume.await_machines(cut, services.fleet, self._settings):
                about = resume.fresh(cut, services.fleet, self._settings)
                rounds = self._looks(about)
                await store.remember(self.name, self._asked(rounds))
                return await self._looked(rounds, about)
            asked = resume.as_it_stands(cut)
            await store.remember(self.name, asked)
        self._say(IncidentState.CAPTURING, "judging what had come before the server's end")
        return await asyncio.to_thread(resume.judged, cut, asked, self._memory.judge)

    async def _looked(self, rounds: CaptureRounds, about: IncidentSubject) -> Verdict:
        services, plan = self._services, about.plan
        if self._before is None:
            await self._captured()
        self._rounds = rounds
        with services.telemetry.stage(IncidentStage.ASKING):
            rounds.ask()
        gone = f", {named(plan.absent)} not connected" if plan.absent else ""
        self._say(IncidentState.CAPTURING, f"asked {counted(len(plan.asked), 'machine')}{gone}")
        return await rounds.verdict()

    async def _captured(self) -> None:
        """Notes that agents are about to be asked; raises NotOurs."""
        services = self._services
        try:
            if self._unbegun is None:
                await services.store.move(self.name, IncidentState.CAPTURING, services.clock())
            else:
                self._shown(state=IncidentState.CAPTURING)
        except NotOurs:
            raise
        except StoreFailed as error:  # that it began is written: whoever takes it up looks anew
            log.error("incident %s: the start of its capture is not stored: %s", self.name, error)
        services.telemetry.count(IncidentState.CAPTURING)

    def _looks(self, about: IncidentSubject) -> CaptureRounds:
        services = self._services
        archive = self._archive = Archive(services.store, services.dictionary, self.name, about.first)
        name, relevant = self.name, self._progress

        def progress(text: str) -> None:  # not a method: looks that know their incident would wait for the collector
            relevant.say(ProgressUpdate(name, IncidentState.CAPTURING, text, ""))

        return CaptureRounds(
            about, services.fleet, archive, self._memory.judge, self._settings, progress, services.telemetry
        )

    def _asked(self, rounds: CaptureRounds) -> dict[str, object]:
        """What judging it again takes, and for how long the job had stood still when this look began."""
        return {**rounds.remembered(), "stood_s": self._stood_s, "began": self.began}

    async def _remember(self, verdict: Verdict) -> str:
        """Stores a verdict; a disk that fails now must not keep it from whoever waits for it, so it is only said."""

        async def remember() -> None:
            services, store = self._services, self._services.store
            await self._written()
            if self._before is not None and self._rounds is not None:
                await store.judged_again(
                    self.name, self._asked(self._rounds), verdict, services.clock(), self._user, self._request.why
                )
            else:
                if self._rounds is not None:
                    await store.remember(self.name, self._asked(self._rounds))
                await store.judged(self.name, verdict, services.clock(), self._user)
                services.telemetry.count(IncidentState.JUDGED)
            services.judged.set()
            services.telemetry.count(verdict.kind)

        try:
            await remember()
            self._services.store.unwritten.pop(self.name, None)
        except StoreFailed as error:
            log.error("incident %s: verdict not stored: %s", self.name, error)
            self._unstored = remember
            document = to_json(verdict)
            self._shown(
                state=IncidentState.JUDGED, kind=document["verdict"], confidence=document["confidence"],
                evict=tuple(document["evict"]["machines"]), verdict=json.dumps(document),
            )  # fmt: skip
            return f" (not stored: {error})"
        return ""

    async def _fail(self, error: HangdogError) -> None:
        if self._before is not None:  # the verdict before it stands
            log.error("incident %s: a further look failed: %s", self.name, error)
            self._end(error)
            return

        async def remember() -> None:
            await self._written()
            await self._services.store.move(self.name, IncidentState.FAILED, self._services.clock(), str(error))

        self._services.telemetry.count(IncidentState.FAILED)
        try:
            await remember()
            self._services.store.unwritten.pop(self.name, None)
        except StoreFailed as worse:
            log.error("incident %s: its failure is not stored: %s", self.name, worse)
            self._unstored = remember
            self._shown(state=IncidentState.FAILED)
        self._end(error)

    async def _begin(self, incident: Incident, asked: dict[str, Any]) -> str:
        """Writes that it begins; where the store fails it is led in memory, which is said. Raises NotOurs."""
        try:
            await self._services.store.begin(incident, asked)
        except NotOurs:
            raise
        except StoreFailed as error:
            log.error("incident %s continues in memory, because it cannot be stored: %s", self.name, error)
            self._unbegun = incident, asked
            self._services.store.unwritten[self.name] = replace(
                incident, changed=incident.began, note=f"{UNWRITTEN}: {error}"
            )
            return f" (not written: {error})"
        return ""

    async def _written(self) -> None:
        """Writes what could not be written before; raises StoreFailed."""
        store = self._services.store
        if self._unbegun is not None:
            await store.begin(*self._unbegun)
            self._unbegun = None
        if self._archive is not None:
            await self._archive.write()

    def _shown(self, **changed: Any) -> None:
        """How an incident that is not written stands, for people to see."""
        unwritten = self._services.store.unwritten
        if self.name not in unwritten:
            begun = self._before or Incident(self.name, self._job, self.began, self._request.why)
            unwritten[self.name] = replace(begun, note=UNWRITTEN)
        unwritten[self.name] = replace(unwritten[self.name], changed=self._services.clock(), **changed)

    def _end(self, error: HangdogError) -> None:
        self._progress.failure = error
        self._say(IncidentState.FAILED, str(error))

    def _say(self, state: IncidentState, text: str, verdict: str = "") -> None:
        self._progress.say(ProgressUpdate(self.name, state, text, verdict))


def new_name() -> str:
    """A name that no incident has."""
    return secrets.token_hex(NAME_BYTES)
