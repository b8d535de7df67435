"""Opens an incident again that people were done with, where its standstill goes on: what is closed is looked at by nobody."""

import logging
from dataclasses import replace

from hangdog_models.actions.respond import DecidedSince, ResponseDecision
from hangdog_models.incident import Incident, ResponseKind
from hangdog_models.views.answer_text import accuses
from hangdog_server.auth.audit_log import AuditEntry, AuditLog
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.store.history import responses
from hangdog_server.store.store_errors import StoreFailed

#: A job that stands still so long after somebody was done with its incident is not being seen to: within that time a job is
#: killed, or a machine brought back. As long as the rarest looks are apart. Seconds.
GOES_ON_S = 600.0
#: Between two thoughts about one incident. Seconds.
CHECKED_S = 10.0
#: Who does it.
WHO = "hangdog"

log = logging.getLogger(__name__)


class Reopening:
    """What one server reopens; it is asked about jobs that stand still now."""

    def __init__(self, services: IncidentServices, audit: AuditLog) -> None:
        self._services = services
        self._audit = audit
        self._checked: dict[str, float] = {}

    def due(self, incident: str, now: float) -> bool:
        """Whether to think about an incident again; `now` is in seconds on a steady clock."""
        self._checked = {name: at for name, at in self._checked.items() if now - at < CHECKED_S}
        if not incident or incident in self._checked:
            return False
        self._checked[incident] = now
        return True

    async def check(self, name: str) -> None:
        """Opens an incident again if it is to be; raises StoreFailed."""
        store, now = self._services.store, self._services.clock()
        if name in store.unwritten:
            return
        incident = await store.find(name)
        if not (why := reason(incident, now)):
            return
        entry = AuditEntry("reopen", WHO, "", "suspicion", "", incident.job, why, incident.id)
        await self._audit.note(replace(entry, outcome="asked"))
        wanted = ResponseDecision(ResponseKind.REOPENED, WHO, now, why)
        try:
            await store.write(name, responses.respond, name, wanted, incident.response.decisions)
        except DecidedSince as error:  # somebody was faster
            await self._audit.note(replace(entry, outcome=f"refused: {error}"))
            return
        except StoreFailed as error:
            await self._audit.note(replace(entry, outcome=f"refused: {error}"))
            raise
        log.warning("incident %s of job %s is reopened: %s", name, incident.job, why)
        self._services.judged.set()
        await self._audit.note(replace(entry, outcome=str(ResponseKind.REOPENED)))


def reason(incident: Incident, now: float) -> str:
    """Why an incident whose job stands still now is to be open again; empty where it is not to be."""
    response = incident.response
    if not response.closed or incident.went_on_s:
        return ""
    if incident.changed > response.at and incident.conclusion != response.verdict:
        settled = incident.settled.cause if incident.settled is not None else ""
        if accuses(incident.kind) and incident.evict and settled != incident.kind:
            return f"a further look names {', '.join(incident.evict)}"
    after_s = now - response.at
    return f"{incident.job} still stands still {after_s / 60:.0f} minutes after that" if after_s >= GOES_ON_S else ""
