"""Keeps watch: has machines look closer where somebody is overdue, and opens an incident when a job stands still."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Coroutine, Iterator
from dataclasses import replace

from hangdog_models.errors import HangdogError
from hangdog_models.incident import SUSPECTED_WHY
from hangdog_models.stall_timeouts import ASKED_AGAIN_S, RECHECK_S, Suspicion
from hangdog_models.verdict import Kind, from_json
from hangdog_proto.logs import log_context
from hangdog_server.auth.audit_log import AuditEntry, AuditLog, followed
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.job_activity import RankMotion
from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.session import StallOver
from hangdog_server.cluster.session_tracker import SessionTracker
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.incidents.episode.reopening import Reopening
from hangdog_server.incidents.fair_queue import Turns
from hangdog_server.incidents.incident_run import IncidentRequest
from hangdog_server.incidents.phase_keeper import PhaseKeeper
from hangdog_server.incidents.registry import IncidentRegistry
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.commands import RecheckCommand
from hangdog_server.store.leases import NotOurs
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.telemetry import SILENT, Delay, Telemetry

#: Between two thoughts about all jobs: a small part of the seconds a rank is borne. Seconds.
TICK_S = 1.0
#: Between two attempts to note that a job went on, while the store is away. Seconds.
NOTED_AGAIN_S = 2.0

log = logging.getLogger(__name__)


class StallWatcher:
    """The watch over all jobs; `keep` holds it until it is cancelled."""

    def __init__(
        self,
        monitor: StallTracker,
        fleet: Fleet,
        registry: IncidentRegistry,
        leading: Leading,
        audit: AuditLog,
        seen: SessionTracker,
        turns: Turns,
        phases: PhaseKeeper,
        reopening: Reopening,
        telemetry: Telemetry = SILENT,
    ) -> None:
        """`turns` is in which order captures are taken, where not all may be at once."""
        self._phases = phases
        self._turns = turns
        self._seen = seen
        self._leading = leading
        self._telemetry = telemetry
        self._stalls = monitor
        self._fleet = fleet
        self._registry = registry
        self._audit = audit
        self._asked: dict[tuple[str, str], float] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._reopening = reopening
        self._noting: set[asyncio.Task[None]] = set()

    async def keep(self) -> None:
        """Thinks about every job again and again."""
        try:
            while True:
                try:
                    self.think(steady())
                except Exception:  # a bug met in one thought must not leave the cluster unwatched
                    log.exception("a pass of the stall watch failed")
                await asyncio.sleep(TICK_S)
        finally:
            tasks = (*self._asking.values(), *self._noting)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def think(self, now: float) -> None:
        """Looks closer, and asks, where it is time to."""
        doubted = self._stalls.doubted()
        self._stalls.seen(self._fleet.jobs(), now)
        for job in doubted:
            self._recheck(job, now)
        for job in self._fleet.jobs():
            # one that is in its usual evaluation while the server starts is not suspected before that is known
            if self._leading.elsewhere(job) or not self._phases.ready(job, now):
                continue
            # where nobody is in doubt nothing is suspected, and the machines of a large job need not be gone over
            suspicion = self._suspicion(job, now) if job in doubted or self._stalls.learns(job) else None
            if suspicion is not None:
                self._seen.suspected(job, suspicion.seconds, self._registry.now())
                name, _ = self._seen.seen(job)
                if self._reopening.due(name, now):
                    self._beside(self._reopen(name), f"{job} still stands still")
            elif self._seen.stands(job) and not self._stalls.shows(job) and self._fleet.awake(job, now):
                self._seen.moves(job, self._registry.now(), now)
            if self._stalls.due(job, suspicion, now) and suspicion is not None and job not in self._asking:
                with log_context(job=job):
                    log.warning("job %s seems stalled: %s", job, suspicion.why)
                self._telemetry.lasted(Delay.SUSPICION, suspicion.seconds)
                task = asyncio.create_task(self._in_turn(job, suspicion), name=f"asking after {job}")
                self._asking[job] = task
        if self._stalls.activity.due(now):
            self._stalls.activity.note(self._motions(now), now)
        for over in self._seen.went_on():
            self._beside(self._note(over), f"{over.job} went on")

    def _beside(self, noting: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(noting, name=name)
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def _reopen(self, name: str) -> None:
        """Has an incident be open again that people closed, where its job still stands still."""
        try:
            await self._reopening.check(name)
        except HangdogError as error:  # the next thought tries it again
            log.error("incident %s: cannot tell whether to reopen it: %s", name, error)

    def _motions(self, now: float) -> Iterator[tuple[str, RankMotion]]:
        step_s = self._stalls.paces.step_s(now)
        for job in self._fleet.jobs():
            motion = self._stalls.motion(job, self._fleet.asked(job), self._fleet.mute(job, now))
            yield job, replace(motion, step_s=step_s.get(job, 0.0))

    async def _note(self, over: StallOver) -> None:
        """Has the incidents of a standstill tell that the job went on, should the store be away now."""
        for name in over.incidents:
            while True:
                try:
                    await self._registry.went_on(name, over.stood_s)
                except NotOurs:  # another server leads the job now, and sees for itself
                    return
                except StoreFailed as error:
                    log.error("incident %s: that job %s recovered is not stored: %s", name, over.job, error)
                    await asyncio.sleep(NOTED_AGAIN_S)
                else:
                    break

    def _suspicion(self, job: str, now: float) -> Suspicion | None:
        return self._stalls.suspicion(job, self._fleet.asked(job), now, self._fleet.mute(job, now))

    def _recheck(self, job: str, now: float) -> None:
        self._asked = {key: at for key, at in self._asked.items() if now - at < ASKED_AGAIN_S}
        machines = [machine for machine in self._fleet.asked(job) if (machine, job) not in self._asked]
        if not machines:  # to go over the paces of all machines costs more
            return
        name, owner = self._fleet.whose(job)
        command = RecheckCommand(name, RECHECK_S, owner, job in self._stalls.paces.step_s(now))
        for machine in machines:
            if self._fleet.send(machine, command):
                self._asked[machine, job] = now

    async def _in_turn(self, job: str, suspicion: Suspicion) -> None:
        """Asks after a job when it is its turn, if it is suspected still."""
        began = steady()
        try:
            async with self._turns.turn(*self._fleet.payers(job)):
                waited = steady() - began
                now = self._suspicion(job, steady()) if waited >= TICK_S else suspicion
                if now is not None:
                    self._seen.asked(job)
                    await self._ask(job, now)
        finally:
            del self._asking[job]

    async def _ask(self, job: str, suspicion: Suspicion) -> None:
        """Follows the incident of a job to its end and remembers what came of it; one standstill is one incident."""
        kind: Kind | None = None
        evicts, confidence = False, 1.0
        why = f"{SUSPECTED_WHY} {suspicion.why}"
        try:
            with contextlib.suppress(HangdogError):  # the incident itself remembers why it failed
                crash = await self._registry.crash_of(job, suspicion.seconds)
                if crash is not None and await self._registry.hang_after(crash, suspicion.why):
                    self._seen.opened(job, crash.id)
                    kind = Kind(crash.kind) if crash.kind else None
                    evicts, confidence = bool(crash.evict), crash.confidence
                    return
                if crash is not None:
                    why = f"{why}; it crashed before, incident {crash.id}"
                entry = AuditEntry("snapshot", "hangdog", "", "suspicion", "", job, why)
                again, _ = self._seen.seen(job)
                request = IncidentRequest(job, why=why, suspected=True, stood_s=suspicion.seconds, again=again)
                async for step in followed(self._registry.ask(request), self._audit, entry):
                    self._seen.opened(job, step.name)
                    if step.document:
                        verdict = from_json(json.loads(step.document))
                        kind, evicts, confidence = verdict.kind, bool(verdict.evict.machines), verdict.confidence
        finally:
            self._stalls.asked(job, kind, steady(), evicts, confidence)
            self._seen.judged(job, kind)
