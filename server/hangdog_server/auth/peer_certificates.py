"""Which certificates are accepted: those that may be used for it and are not denied; and requests end whose certificate is denied later."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from hangdog_proto.deny_list import DenyList
from hangdog_server.auth import tls
from hangdog_server.auth.tls import Peer
from hangdog_server.protocol.rejections import AgentRejected, Unauthorised

#: Between two looks at whether the certificate of a request that runs was denied. Seconds.
WATCHED_S = 2.0

log = logging.getLogger(__name__)


class Certificates:
    """The certificates that peers show; `trust_dns_names` as in `tls.peer`."""

    def __init__(self, denied: DenyList, trust_dns_names: bool) -> None:
        self._denied = denied
        self._trust_dns_names = trust_dns_names
        self._running: dict[asyncio.Timeout, tuple[Peer, str]] = {}

    def shown(self, auth: Mapping[str, Iterable[bytes]]) -> Peer:
        """What the certificate of whoever asks says, nothing without one; raises NotAllowed where it must not be used.

        `auth` is gRPC's authentication context.
        """
        peer = tls.peer(auth, self._trust_dns_names)
        if peer.unreadable:
            raise Unauthorised(
                AgentRejected.CERTIFICATE,
                f"the certificate cannot be read: {peer.unreadable}",
                code="unusable-certificate",
            )
        if peer.leaf is None:
            return peer
        if not peer.leaf.client_auth:
            what = f"the certificate of {peer.label} does not allow client authentication"
            raise Unauthorised(
                AgentRejected.CERTIFICATE,
                what,
                "its extended key usage must name clientAuth; docs/security.md",
                code="wrong-certificate",
            )
        if because := self._denied.refuses(peer.leaf):
            if self._denied.broken:
                raise Unauthorised(
                    AgentRejected.DENIED,
                    f"{peer.label}: {because}",
                    "ask the operator of the server to mend it; the server's log says what is wrong",
                    code="damaged-deny-list",
                )
            raise _denied(peer, because)
        return peer

    async def keep(self) -> None:
        """Ends requests that run, as soon as their certificate is denied."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCHED_S)
            for limit, (peer, method) in list(self._running.items()):
                because = self._denied.denies(peer.leaf) if peer.leaf is not None else ""
                if because and limit.when() is None:
                    log.warning("%s is cancelled: %s: %s", method, peer.label, because)
                    limit.reschedule(loop.time())

    @asynccontextmanager
    async def while_it_counts(self, peer: Peer, method: str) -> AsyncIterator[None]:
        """A request goes on for as long as the certificate is not denied by which it was let in. Raises NotAllowed."""
        if peer.leaf is None:
            yield
            return
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._running[limit] = peer, method
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise _denied(peer, self._denied.denies(peer.leaf)) from None
        finally:
            self._running.pop(limit, None)


def _denied(peer: Peer, because: str) -> Unauthorised:
    return Unauthorised(
        AgentRejected.DENIED,
        f"{peer.label}: {because}",
        "ask who runs the server for another one",
        code="denied-certificate",
    )
