"""What the store knows of earlier incidents, read and sorted by kind while a new one is captured; no answer waits for it."""

import asyncio
import logging
from dataclasses import replace

import sqlalchemy as sa

from hangdog_models.diagnosis.clustering.incident_families import families
from hangdog_models.incident import SettledCause
from hangdog_models.past_incidents import EarlierIncident, Family, Outcome
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import StallCause, Verdict
from hangdog_server.incidents.judge import Judge
from hangdog_server.store import campaigns, machine_history
from hangdog_server.store.history import settled
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed

log = logging.getLogger(__name__)


class IncidentMemory:
    """The judge of one incident of this `user`'s job, which knows of earlier ones as soon as they are `recalled`."""

    def __init__(self, judge: Judge, store: Store, incident: str, user: str) -> None:
        self._judge = judge
        self._store = store
        self._incident = incident
        self._user = user
        self._past: tuple[Family, ...] = ()

    async def recall(self, now: float) -> None:
        """Reads them, at the date `now`; without the store, or with a bug of ours, an incident is judged as the first one is."""
        try:
            past = await self._store.ask(read, self._incident, self._user, now)
            if past:
                self._past = await asyncio.to_thread(families, past)
        except StoreFailed as error:
            log.warning("incident %s is judged without earlier ones: %s", self._incident, error)
        except Exception:  # the verdict must not depend on what another one left
            log.exception("incident %s is judged without earlier ones", self._incident)

    def judge(self, snapshot: Snapshot, topology: Topology) -> Verdict:
        """The verdict, with what is known by now."""
        return self._judge(replace(snapshot, past=self._past) if self._past else snapshot, topology)


def read(connection: sa.Connection, incident: str, user: str, now: float) -> tuple[EarlierIncident, ...]:
    """The incidents that count for a new one, newest first, and what tests found of their machines.

    Of another user's job one counts only where tests or people convicted its machine: what a stranger's job shows is a
    stranger's word. What people said counts before tests: they knew those.
    """
    past = machine_history.past(connection, incident, now)
    names = [one.id for _, one in past]
    tested, spoken = (campaigns.tested(connection, names), settled.of_each(connection, names)) if past else ({}, {})
    found = []
    for whose, one in past:
        by_tests = tested.get((one.id, one.features.machine), Outcome.OPEN)
        outcome = settled_outcome(spoken[one.id], one.features.machine, by_tests) if one.id in spoken else by_tests
        if outcome is not None and (whose == user or outcome is Outcome.CONVICTED):
            found.append(replace(one, outcome=outcome))
    return tuple(found)


def settled_outcome(settled: SettledCause, machine: str, by_tests: Outcome) -> Outcome | None:
    """What people say of the machine that an incident was laid to; None: it was neither this machine nor the code.

    Where they name no machine, it is this one only by a conviction of tests.
    """
    if settled.cause == StallCause.SOFTWARE:
        return Outcome.CLEARED
    if settled.cause not in (StallCause.MACHINE, StallCause.SLOW):
        return None
    guilty = machine in settled.machines if settled.machines else by_tests is Outcome.CONVICTED
    return Outcome.CONVICTED if guilty else None
