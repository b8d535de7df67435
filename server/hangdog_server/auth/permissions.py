"""Who may ask what: one table for all gRPC methods and HTTP operations; what does not stand in it is refused to everybody."""

from collections.abc import Mapping

from hangdog_server.auth.tokens import Role

#: Any peer is enough that showed a certificate that identifies it, or a token.
KNOWN = "known"
#: A machine's agent alone; whose it is, is seen once it has said its name.
AGENT = "agent"
#: Everybody: it tells nothing, and is how people log in.
ANYBODY = "anybody"

#: What each gRPC method takes.
GRPC: Mapping[str, Role | str] = {
    "/hangdog.v1.Agents/Connect": AGENT,
    "/hangdog.v1.Incidents/Snapshot": Role.TRIGGER,
    "/hangdog.v1.Incidents/List": Role.VIEW,
    "/hangdog.v1.Incidents/Get": Role.VIEW,
    "/hangdog.v1.Incidents/Machines": Role.VIEW,
    "/hangdog.v1.Incidents/Mentions": Role.VIEW,
    "/hangdog.v1.Incidents/Bundle": Role.VIEW,
    "/hangdog.v1.Incidents/Communicators": Role.VIEW,
    "/hangdog.v1.Incidents/Report": Role.VIEW,
    "/hangdog.v1.Campaigns/Run": Role.ACT,  # it takes machines for minutes, and ends in convictions
    "/hangdog.v1.Campaigns/Abort": Role.ACT,
    "/hangdog.v1.Campaigns/Follow": Role.VIEW,
    "/hangdog.v1.Campaigns/Plan": Role.VIEW,
    "/hangdog.v1.Campaigns/List": Role.VIEW,
    "/hangdog.v1.Campaigns/Get": Role.VIEW,
    "/hangdog.v1.Campaigns/History": Role.VIEW,
    "/hangdog.v1.Incidents/Actions": Role.VIEW,
    "/hangdog.v1.Incidents/Act": Role.ACT,
    "/hangdog.v1.Incidents/Respond": Role.ACT,  # it ends who is told, and by it later incidents are judged
    "/grpc.health.v1.Health/Check": KNOWN,
    "/grpc.health.v1.Health/List": KNOWN,
    "/grpc.health.v1.Health/Watch": KNOWN,
}

#: What each HTTP operation takes, by its method and the path of its route.
HTTP: Mapping[tuple[str, str], Role | str] = {
    ("GET", "/login"): ANYBODY,
    ("POST", "/login"): ANYBODY,
    ("POST", "/logout"): ANYBODY,
    ("GET", "/favicon.ico"): ANYBODY,
    ("GET", "/"): Role.VIEW,
    ("GET", "/incidents/{id}"): Role.VIEW,
    ("GET", "/incidents/{id}/postmortem.md"): Role.VIEW,
    ("GET", "/incidents"): Role.VIEW,
    ("GET", "/jobs"): Role.VIEW,
    ("GET", "/jobs/{name:path}/communicators"): Role.VIEW,
    ("GET", "/machines"): Role.VIEW,
    ("GET", "/actions"): Role.VIEW,
    ("GET", "/machines/{name:path}"): Role.VIEW,
    ("GET", "/api/now"): Role.VIEW,
    ("GET", "/api/incidents"): Role.VIEW,
    ("GET", "/api/incidents/{id}"): Role.VIEW,
    ("GET", "/api/incidents/{id}/events"): Role.VIEW,
    ("GET", "/api/jobs"): Role.VIEW,
    ("GET", "/api/jobs/{name:path}/communicators"): Role.VIEW,
    ("GET", "/api/machines"): Role.VIEW,
    ("GET", "/api/machines/{name:path}"): Role.VIEW,
    ("GET", "/api/events"): Role.VIEW,
    ("GET", "/api/actions"): Role.VIEW,
    ("GET", "/api/openapi.json"): Role.VIEW,
    # what is done to machines, and the pages that say it first
    ("GET", "/incidents/{id}/approve"): Role.ACT,
    ("POST", "/incidents/{id}/approve"): Role.ACT,
    ("POST", "/api/incidents/{id}/approve"): Role.ACT,
    ("GET", "/incidents/{id}/dismiss"): Role.ACT,
    ("POST", "/incidents/{id}/dismiss"): Role.ACT,
    ("POST", "/api/incidents/{id}/dismiss"): Role.ACT,
    ("POST", "/incidents/{id}/ack"): Role.ACT,
    ("POST", "/api/incidents/{id}/ack"): Role.ACT,
    ("POST", "/incidents/{id}/take-over"): Role.ACT,
    ("POST", "/api/incidents/{id}/take-over"): Role.ACT,
    ("POST", "/incidents/{id}/give-back"): Role.ACT,
    ("POST", "/api/incidents/{id}/give-back"): Role.ACT,
    ("POST", "/incidents/{id}/note"): Role.ACT,
    ("POST", "/api/incidents/{id}/note"): Role.ACT,
    ("GET", "/incidents/{id}/resolve"): Role.ACT,
    ("POST", "/incidents/{id}/resolve"): Role.ACT,
    ("POST", "/api/incidents/{id}/resolve"): Role.ACT,
    ("GET", "/incidents/{id}/reopen"): Role.ACT,
    ("POST", "/incidents/{id}/reopen"): Role.ACT,
    ("POST", "/api/incidents/{id}/reopen"): Role.ACT,
    ("GET", "/machines/{name:path}/release"): Role.ACT,
    ("POST", "/machines/{name:path}/release"): Role.ACT,
    ("POST", "/api/machines/{name:path}/release"): Role.ACT,
    ("GET", "/breaker/close"): Role.ACT,
    ("POST", "/breaker/close"): Role.ACT,
    ("POST", "/api/breaker/close"): Role.ACT,
    ("GET", "/incidents/{id}/diagnose"): Role.ACT,
    ("POST", "/incidents/{id}/diagnose"): Role.ACT,
    ("POST", "/api/incidents/{id}/diagnose"): Role.ACT,
    ("GET", "/campaigns/{id}/abort"): Role.ACT,
    ("POST", "/campaigns/{id}/abort"): Role.ACT,
    ("POST", "/api/campaigns/{id}/abort"): Role.ACT,
}
