"""Decides on actions after verdicts, stores them, and has them carried out until they are done.

Nothing is done that is not in the store before. `execute.py` does it, and believes only what it reads back.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa

from hangdog_models.actions.action_history import Body, WantedAction
from hangdog_models.actions.caps import Mode
from hangdog_models.actions.respond import clears
from hangdog_models.errors import HangdogError
from hangdog_models.incident import RUNS_ON, SLOWED_WHY, Incident
from hangdog_models.owner import UNKNOWN, Owner, read
from hangdog_models.reading.job import read_job
from hangdog_models.views.answer_text import percent
from hangdog_server.actions import policy
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.backend import JobPlacement, Scheduler
from hangdog_server.actions.execute import Executor
from hangdog_server.actions.policy import ActionFacts, ActionRule
from hangdog_server.actions.restart_preview import RestartPreviews
from hangdog_server.auth.audit_log import AuditLog
from hangdog_server.cluster.leadership import Leading
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.switches import shared
from hangdog_server.settings import ServerSettings
from hangdog_server.store import actions, test_results
from hangdog_server.store.actions import ActionRecord
from hangdog_server.store.leases import NotOurs
from hangdog_server.store.store_errors import StoreFailed

#: Between two tries, and between two looks into the store if nothing wakes the loop. Seconds.
TICK_S = 5.0
#: Between two looks at whether a job has started again: a scheduler takes some seconds for it.
MOVING_S = 1.0

log = logging.getLogger(__name__)


class _MachinePlace(NamedTuple):
    switch: str
    domains: tuple[str, ...]


class ActionLoop:
    """The loop that decides and acts, on one server; `keep` runs until it is cancelled."""

    def __init__(
        self,
        services: IncidentServices,
        settings: ServerSettings,
        leading: Leading,
        audit: AuditLog,
        chosen: ActionsConfig,
    ) -> None:
        self.chosen = chosen
        self._services = services
        self._settings = settings
        self._leading = leading
        self._executor = Executor(services, audit, chosen)
        self._previews = RestartPreviews(services, leading, chosen)
        self._began = steady()

    async def keep(self) -> None:
        """Repeats `tick`; raises nothing."""
        while True:
            try:
                await self.tick()
            except StoreFailed as error:
                log.error("hangdog does not act on machines now: %s", error)
            except Exception:  # a bug met in one verdict must not stop the actions for others
                log.exception("a round of actions failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MOVING_S if self._executor.moving else TICK_S):
                    await self._services.judged.wait()
            self._services.judged.clear()

    async def close(self) -> None:
        """Closes the backends."""
        await self._previews.close()
        for actor in self.chosen.actors:
            await actor.close()

    async def tick(self) -> None:
        """Stores the actions for new verdicts, and does one step of all that are stored; raises StoreFailed."""
        self._executor.moving = False
        if self.stopped():
            return
        await self._propose()
        self._previews.begin()
        rows = sorted(await self._services.store.ask(actions.under_way), key=lambda row: row.incident)
        groups = [list(group) for _, group in groupby(rows, lambda row: row.incident)]
        mine = [group for group in groups if await self._leading.leads(group[0].job)]
        ended = await asyncio.gather(*map(self._executor.carry, mine), return_exceptions=True)
        for group, error in zip(mine, ended, strict=True):
            if isinstance(error, StoreFailed):
                raise error
            if error is not None:  # a bug met in one action must not stop all others
                log.error("incident %s: its actions failed", group[0].incident, exc_info=error)

    def stopped(self) -> bool:
        """Whether the stop file is there."""
        return self.chosen.stop is not None and self.chosen.stop.exists()

    def rule(self) -> ActionRule:
        """How far hangdog may go now."""
        return ActionRule(self.chosen.mode, self.chosen.caps, self._services.clock())

    async def facts(self, incident: str) -> ActionFacts:
        """What is known of all machines, of those of an incident's job, and of which machines hold its checkpoint."""
        store = self._services.store
        asked, _ = await store.kept(incident)
        return await self._facts(await store.find(incident), asked)

    async def _facts(self, incident: Incident, asked: Mapping[str, Any]) -> ActionFacts:
        """`asked` is the request of an incident: megabytes in a large job, so it is read once."""
        fleet = self._services.fleet
        declared = read_job(asked["job_toml"])[1].switches if asked.get("job_toml") else {}
        switches = shared(declared, _places(asked)).switches
        domains = {machine: switch for switch, machines in sorted(switches.items()) for machine in machines}
        there = {seen.machine for seen in fleet.machines(steady())} | fleet.bodies().keys()
        there |= {*asked.get("asked", {}), *asked.get("absent", {})}
        copies, unread = await self._executor.copies(incident.job)
        owner = _owner(asked)
        conflicts = await self._contradicted(incident, owner, asked)
        return ActionFacts(
            len(there), await self._spares(), fleet.bodies(), domains, copies, unread, owner, conflicts, _pods(asked)
        )

    async def _contradicted(self, incident: Incident, owner: Owner, asked: Mapping[str, Any]) -> tuple[str, ...]:
        """What machines contradicted each other about during the capture, or do now, and what the scheduler contradicts."""
        stated = (*asked.get("conflicts", ()), *self._services.fleet.conflicts(incident.job))
        schedulers = [actor for actor in self.chosen.actors if isinstance(actor, Scheduler)]
        placement = JobPlacement(owner, _pods(asked), incident.evict)
        known = [await one.contradicts(placement) for one in schedulers]
        return tuple(dict.fromkeys((*stated, *(words for found in known for words in found))))

    async def _spares(self) -> frozenset[str]:
        """The spares: machines without a job, not convicted lately, and tested if `tested_s` asks for that."""
        now, probation_s, tested_s = self._services.clock(), self._settings.probation_s, self.chosen.caps.tested_s
        convicted_since = now - probation_s if probation_s else math.inf
        tested_since = now - tested_s if tested_s else None
        return await self._services.store.ask(
            test_results.fit, self._services.fleet.free(), convicted_since, tested_since
        )

    async def _propose(self) -> None:
        if self.chosen.mode is Mode.OBSERVE:
            return
        store, rule = self._services.store, self.rule()
        judged = await store.evicting(rule.now - rule.caps.evidence_s)
        known = await store.ask(actions.known, [incident.id for incident in judged]) if judged else frozenset()
        for incident in judged:
            wanting = [machine for machine in incident.evict if (incident.id, machine) not in known]
            if not any(not clears(incident.response, incident.settled, one) for one in wanting):
                continue
            if not await self._leading.leads(incident.job):
                continue
            asked, _ = await store.kept(incident.id)
            bodies = _bodies(incident.evict, asked.get("bodies"))
            if self._awaited(incident.evict, bodies):
                continue
            seen_at = asked.get("began", incident.began)  # a later capture of the same stall is newer than its incident
            wanted = WantedAction(incident.id, incident.job, incident.evict, seen_at, bodies)
            try:
                facts = await self._facts(incident, asked)
            except HangdogError as error:
                log.error("incident %s: it leads to no action: %s", incident.id, error)
                continue
            try:
                rows = await self._written(wanted, _because(incident), facts, _bounded(rule, incident))
            except NotOurs:
                continue
            for row in rows:
                await self._executor.note(row, "isolate", f"{row.state}{f': {row.message}' if row.message else ''}")

    async def _written(
        self, wanted: WantedAction, because: str, facts: ActionFacts, rule: ActionRule
    ) -> tuple[ActionRecord, ...]:
        store = self._services.store

        def propose(connection: sa.Connection) -> tuple[ActionRecord, ...]:
            store.one_at_a_time(connection, policy.TURN)
            return policy.propose(connection, wanted, because, facts, rule)

        return await store.write(wanted.incident, propose)

    def _awaited(self, machines: Iterable[str], bodies: dict[str, Body]) -> bool:
        """Whether agents may still reconnect to a server that has just begun, and report that a machine was rebooted."""
        known = self._services.fleet.bodies()
        late = any(machine in bodies and machine not in known for machine in machines)
        return late and steady() - self._began < self._settings.returned_s


def _bounded(rule: ActionRule, incident: Incident) -> ActionRule:
    """The mode for an incident. If wrong numbers or a machine check opened it, the job may run on: a person decides."""
    asks = rule.mode is Mode.AUTO and incident.why.startswith((*RUNS_ON, SLOWED_WHY))
    return replace(rule, mode=Mode.APPROVE) if asks else rule


def _because(incident: Incident) -> str:
    return f"{incident.kind} ({percent(incident.confidence)}), hangdog show {incident.id}"


def _owner(asked: Mapping[str, Any]) -> Owner:
    """Whose job it was, by the machines that were asked; unknown if none says."""
    reported = {one["owner"] for one in asked.get("asked", {}).values() if one and one.get("owner")}
    return read(min(reported)) if reported else UNKNOWN


def _pods(asked: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The job's pods on each machine that was asked."""
    return {machine: tuple((one or {}).get("pods", ())) for machine, one in asked.get("asked", {}).items()}


def _places(asked: Mapping[str, Any]) -> dict[str, _MachinePlace]:
    """The fault domain of each machine of the job, as known when they were asked."""
    reported = {**asked.get("absent", {}), **asked.get("asked", {})}
    return {
        machine: _MachinePlace(one.get("switch", ""), tuple(one.get("domains", ())))
        for machine, one in ((machine, stated or {}) for machine, stated in reported.items())
    }


def _bodies(machines: Iterable[str], reported: object) -> dict[str, Body]:
    return (
        {machine: Body(*reported[machine]) for machine in machines if machine in reported}
        if isinstance(reported, dict)
        else {}
    )
