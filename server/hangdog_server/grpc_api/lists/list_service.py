"""Answers what is asked of the four lists: for pages, programs and commands alike."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hangdog_models.incident import Incident
from hangdog_models.lists.incident_status import status_of
from hangdog_models.lists.list_page import ListEntry, ListPage, page_of
from hangdog_models.lists.list_query import ListQuery
from hangdog_models.lists.machine_now import MachineNow
from hangdog_models.views.job_state import severity
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.job_states import JobStates, KnownJob, jobs_mark
from hangdog_server.grpc_api.lists.machine_table import MachineTable
from hangdog_server.store.actions import ActionRecord
from hangdog_server.store.lists import action_list, incident_list
from hangdog_server.store.store import Store

_JOB_SORTS: dict[str, Callable[[KnownJob], Any]] = {
    "worst": lambda one: (severity(one.state), one.name),
    "name": lambda one: one.name,
    "machines": lambda one: (-one.machines, one.name),
    "ranks": lambda one: (-one.ranks, one.name),
}


class Lists:
    """The lists of one server; `clock` gives Unix seconds. Everything raises HangdogError."""

    def __init__(self, fleet: Fleet, states: JobStates, store: Store, clock: Callable[[], float]) -> None:
        self._states = states
        self._store = store
        self._clock = clock
        self._machines = MachineTable(fleet, store)

    async def incidents(self, query: ListQuery) -> ListPage[Incident]:
        """Incidents; those that could not be written stand before all others."""
        found = await self._store.ask(incident_list.page, query)
        here = [ListEntry(one, _text(one), (str(status_of(one)),), (one.job,)) for one in self._unwritten()]
        if not here:
            return found
        more = page_of(here, replace(query, page=1, limit=max(1, len(here))))
        names = {one.id for one in more.rows}
        first = more.rows if query.page == 1 else ()
        rows = (*first, *(one for one in found.rows if one.id not in names))
        counts = Counter(found.counts) + Counter(more.counts)
        whole = {state: counts[state] for state in query.kind.states}
        return ListPage(rows, found.found + more.found, found.known + more.known, whole, query)

    async def actions(self, query: ListQuery) -> ListPage[ActionRecord]:
        """What was, is and would be done to machines."""
        return await self._store.ask(action_list.page, query)

    async def known_jobs(self) -> tuple[KnownJob, ...]:
        """All jobs that are known now."""
        return await self._states.known()

    async def jobs(self, query: ListQuery, of: tuple[KnownJob, ...] | None = None) -> ListPage[KnownJob]:
        """The jobs that are known now, or those that somebody has asked for already."""
        known = sorted(await self.known_jobs() if of is None else of, key=_JOB_SORTS[query.order[0]])
        entries = [
            ListEntry(one, f"{one.name}\n{one.state.text}".lower(), (str(one.state.condition),)) for one in known
        ]
        return page_of(entries, query)

    async def machines(self, query: ListQuery, without_store: bool = False) -> ListPage[MachineNow]:
        """The machines; `without_store` while it is away, too, as far as they are known then."""
        return await self._machines.page(query, self._clock(), without_store)

    async def machines_mark(self, machine: str = "") -> str:
        """Another once the list of machines would show something else, or the line of one machine."""
        return await self._machines.mark(self._clock(), machine)

    async def incidents_mark(self) -> tuple[object, ...]:
        """Another once the list of incidents would show something else."""
        here = [(one.id, str(one.state), one.changed) for one in self._unwritten()]
        return (*await self._store.ask(incident_list.changes), here)

    async def jobs_mark(self) -> str:
        """Another once the list of jobs would show something else."""
        return jobs_mark(await self._states.known())

    async def actions_mark(self) -> tuple[object, ...]:
        """Another once the list of actions would show something else."""
        return await self._store.ask(action_list.changes)

    def close(self) -> None:
        """Ends what works beside the event loop."""
        self._machines.close()

    def _unwritten(self) -> list[Incident]:
        """Those of which the store knows nothing yet, the newest first."""
        return sorted(self._store.unwritten.values(), key=lambda one: (-one.began, one.id))


def _text(incident: Incident) -> str:
    return f"{incident.id}\n{incident.job}\n{incident.state}\n{incident.kind}\n{incident.why}\n{incident.note}".lower()
