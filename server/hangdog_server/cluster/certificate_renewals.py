"""Has the certificates of connected machines renewed: for the machine that a stream speaks for, only so often, and recorded first."""

import logging
from dataclasses import replace

from hangdog_models.errors import HangdogError, NotAllowed, OurFault, WrongUse
from hangdog_proto import x509
from hangdog_server.auth.audit_log import AuditEntry, AuditLog
from hangdog_server.auth.issuer import Issuer
from hangdog_server.auth.shown_certificates import CertificateFacts
from hangdog_server.auth.tls import Peer, day
from hangdog_server.cluster.connection import Connection
from hangdog_server.protocol.commands import Renewed
from hangdog_server.protocol.rate_limits import Budgets, LogThrottle

log = logging.getLogger(__name__)

#: Certificates signed for one machine at once, and again each second: it wants two in a week, and may lose an answer.
AT_ONCE, PER_S = 4, 1 / 3600


class Renewals:
    """What a server signs for its agents; without an issuer nothing."""

    def __init__(self, issuer: Issuer | None, audit: AuditLog) -> None:
        self._issuer = issuer
        self._audit = audit
        self._budgets = Budgets(AT_ONCE, PER_S)
        self._seldom = LogThrottle()

    def due_in_s(self, held: CertificateFacts | None) -> float | None:
        """Seconds until an agent should ask; None where nothing would be signed for it."""
        if self._issuer is None or held is None or held.peer.leaf is None:
            return None
        return self._issuer.renew_in_s(held.peer.leaf)

    async def answer(
        self, held: CertificateFacts | None, connection: Connection, request: bytes, now: float
    ) -> Renewed:
        """What an agent is told that asks for a certificate: one for the machine its stream speaks for, or why not.

        `now` is in seconds on a steady clock.
        """
        machine = connection.machine
        try:
            return Renewed(await self._renew(held.peer if held else None, machine, connection.peer, request, now))
        except HangdogError as error:
            if self._seldom.tell(machine, str(error), now):
                log.warning("machine %s requested a certificate and was refused: %s", machine, error)
            return Renewed(refused=str(error))

    async def _renew(self, shown: Peer | None, machine: str, peer: str, request: bytes, now: float) -> bytes:
        """A new certificate (PEM) for `machine`; what cannot be recorded is not handed out. Raises HangdogError."""
        if self._issuer is None:
            raise WrongUse(
                "this server signs no certificates", "hangdog server --issuer; docs/security.md", code="no-issuer"
            )
        if shown is None or shown.leaf is None or machine not in shown.machines:
            raise NotAllowed(f"the agent showed no certificate of machine {machine}", code="no-machine-certificate")
        if not self._budgets.take(machine, 1, now):
            raise WrongUse(
                f"{machine} got {AT_ONCE} certificates lately",
                "the server signs another one within the hour",
                code="rate-limited",
            )
        entry = AuditEntry("certificate renew", machine, "", "certificate", peer, "", f"instead of {shown.leaf.serial}")
        try:
            made = self._issuer.sign(request, machine)
        except HangdogError as error:
            await self._audit.note(replace(entry, outcome=f"refused: {error}"))
            raise
        found = x509.read_pem(made)
        if not await self._audit.note(replace(entry, outcome=f"signed {found.serial}, until {day(found.ends)}")):
            raise OurFault("the audit log cannot be written", "the server's log says why", code="audit-log-failed")
        return made


#: Of a server that signs nothing.
NO_RENEWALS = Renewals(None, AuditLog(None, lambda: 0.0))
