"""Says into which incident a look goes: a new one, a further look at one that is open, or none where all is decided."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from hangdog_models.incident import Incident
from hangdog_server.cluster.stalls import may_change
from hangdog_server.incidents.incident_run import IncidentRequest, IncidentServices
from hangdog_server.incidents.replay import BEHIND
from hangdog_server.store.history import stall_incidents
from hangdog_server.store.history.stall_incidents import StallIncident
from hangdog_server.store.store_errors import StoreFailed

#: The incident in which the standstill of a job was looked at that is seen now, and since when it stands (Unix seconds).
#: Empty where no server has seen one.
Seen = Callable[[str], tuple[str, float]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FurtherLook:
    """An incident that is looked at again: from which number on captures are kept, and how a person described the job."""

    incident: Incident
    first: int
    job_toml: str


class SameStall:
    """Finds what was made of a standstill before; `seen` is what this server sees of it."""

    def __init__(self, services: IncidentServices, seen: Seen) -> None:
        self._services = services
        self._seen = seen

    async def of(self, request: IncidentRequest, job: str) -> FurtherLook | Incident | None:
        """The incident for a further look; one whose verdict stands; or None, where a new one begins."""
        name, since = request.again, self._services.clock() - request.stood_s
        if not request.suspected:
            name, since = self._seen(job)
            if not name or request.light:  # a light look asks who is slow, of a job that trains on
                return None
        store = self._services.store
        if name in store.unwritten:
            return None
        try:
            found = await store.ask(stall_incidents.find, job, name, since)
            if found is None:
                return None
            stood_before = since <= found.changed  # nothing has moved since it was judged
            if found.acted and not stood_before:
                return None  # what was started after the act is another matter
            incident = await store.find(found.id)
            if request.suspected and stood_before and _decided(found):
                return incident
            return FurtherLook(incident, *await store.next_look(found.id, BEHIND))
        except StoreFailed as error:  # a job that hangs is looked at all the same, as an incident of its own
            log.error("job %s: cannot tell whether to capture it again: %s", job, error)
            return None


def _decided(found: StallIncident) -> bool:
    """Whether another look by itself would say no more."""
    return bool(found.kind) and (bool(found.evict) or found.acted or not may_change(found.kind, found.confidence))
