"""Who has an incident, what people noted, and what it is like, as a part of its page: with the forms of those who may."""

import secrets

from markupsafe import Markup

from hangdog_models.incident import ENDED, Incident, ResponseEntry
from hangdog_models.past_incidents import SimilarIncidents
from hangdog_server.incidents.decode import WHY
from hangdog_server.web.render import part, utc

#: Entries that stand open on the page, the latest; the ones before are folded.
OPEN = 5


def response_part(
    incident: Incident, entries: tuple[ResponseEntry, ...], similar: SimilarIncidents, acts: bool, person: str
) -> Markup:
    """`acts`: whoever looks, called `person`, may do something about it. What cannot be done as it stands has no button."""
    response = incident.response
    return part(
        "response.html",
        incident=incident,
        stands=str(incident.settled or response) or ("Nobody has it yet." if not incident.went_on_s else ""),
        since=utc(response.at if response.closed else response.acknowledged_at),
        entries=[(utc(one.at), str(one)) for one in entries],
        folded=max(0, len(entries) - OPEN),
        similar=similar,
        when={one.id: utc(one.began) for one in similar.shown},
        may={
            "ack": acts and not response.closed and not response.acknowledged_by,
            "take-over": acts and not response.closed and response.acknowledged_by not in ("", person),
            "give-back": acts and not response.closed and response.acknowledged_by == person,
            "close": acts and not response.closed and incident.state in ENDED,
            "resolve": acts and incident.state in ENDED and incident.settled is None,
            "reopen": acts and response.closed,
            "note": acts,
        },
        key=secrets.token_hex(8),
        most=WHY,
    )
