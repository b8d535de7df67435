"""Counts, logs and records requests that are refused: somebody may be trying what counts."""

import asyncio
import ipaddress
import logging

from hangdog_models.errors import NotAllowed
from hangdog_server.auth.audit_log import AuditEntry, AuditLog
from hangdog_server.protocol.rate_limits import LogThrottle, RateBudget
from hangdog_server.protocol.rejections import AgentRejected, Unauthorised
from hangdog_server.telemetry import Telemetry

#: Refused requests written into the audit log at once, and again each second: a stranger must not fill it and push out the rest.
AT_ONCE, PER_S = 60, 1 / 60
#: What is recorded: somebody showed what does not count. A missing token is everybody's first mistake.
RECORDED = frozenset((AgentRejected.TOKEN, AgentRejected.CERTIFICATE, AgentRejected.DENIED, AgentRejected.PROXY))

log = logging.getLogger(__name__)


class Tries:
    """Who hears of what is refused."""

    def __init__(self, telemetry: Telemetry, audit: AuditLog) -> None:
        self._telemetry = telemetry
        self._audit = audit
        self._seldom = LogThrottle()
        self._budget = RateBudget(AT_ONCE, PER_S)

    async def refused(self, what: str, peer: str, error: NotAllowed) -> None:
        """Counts a request that is refused; logs and records it too, unless the same peer was refused so lately."""
        reason = error.reason if isinstance(error, Unauthorised) else AgentRejected.OTHER
        self._telemetry.count(reason)
        now = asyncio.get_running_loop().time()
        if not self._seldom.tell(address(peer), str(error), now):
            return
        log.warning("%s is refused %s: %s", address(peer), what or "a request", error)
        if reason in RECORDED and self._budget.take(1, now):
            await self._audit.note(AuditEntry("request refused", "", "", "", peer, "", what, outcome=str(error)))


def address(peer: str) -> str:
    """The address in gRPC's word for a peer (`ipv4:10.0.0.5:33412`), without its port; the word itself when it is another."""
    kind, _, rest = peer.partition(":")
    host = rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
    try:
        return str(ipaddress.ip_address(host)) if kind in ("ipv4", "ipv6") else peer
    except ValueError:
        return peer
