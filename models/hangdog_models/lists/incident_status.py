"""Where an incident is for whoever is on call: what the server makes of it, and what people decided, in one word."""

from enum import StrEnum

from hangdog_models.incident import UNDER_WAY, Incident, IncidentState, ResponseState


class IncidentStatus(StrEnum):
    """What people decided goes before what was seen of the job, and that before what the verdict says."""

    UNDER_WAY = "under-way"  # its machines are looked at, or about to be
    OPEN = "open"  # judged, and nobody has it
    ACKNOWLEDGED = "acknowledged"  # judged or not, somebody has it
    FAILED = "failed"  # it could not be judged, and nobody has it
    WENT_ON = "went-on"  # its job was seen to go on
    RESOLVED = "resolved"
    DISMISSED = "dismissed"


def status_of(incident: Incident) -> IncidentStatus:
    """The one of an incident; the store says the same in SQL."""
    if incident.response.state == ResponseState.DISMISSED:
        return IncidentStatus.DISMISSED
    if incident.response.state == ResponseState.RESOLVED:
        return IncidentStatus.RESOLVED
    if incident.went_on_s:
        return IncidentStatus.WENT_ON
    if incident.response.acknowledged_by:
        return IncidentStatus.ACKNOWLEDGED
    if incident.state in UNDER_WAY:
        return IncidentStatus.UNDER_WAY
    return IncidentStatus.FAILED if incident.state == IncidentState.FAILED else IncidentStatus.OPEN
