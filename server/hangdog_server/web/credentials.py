"""Who asks over HTTP: by the token of a header or a cookie, or by a proxy's word, as over gRPC; and what a browser may be made to ask."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from hangdog_models.errors import NotAllowed
from hangdog_proto.client.server_address import is_loopback
from hangdog_server.auth.authorizer import Authorizer, Person, once
from hangdog_server.auth.relayed_peer import From
from hangdog_server.auth.tls import NOBODY

#: Seconds a browser keeps the token: a shift and its hand-over. The token itself may end or be revoked before.
KEPT_S = 12 * 3600


class HttpCredentials:
    """Tells who asks. `open_`: while there are no tokens, whoever reaches this machine's loopback may; `secure`: over TLS."""

    def __init__(self, gate: Authorizer, open_: bool, anywhere: bool, secure: bool) -> None:
        """`anywhere`: it is open to everybody by any name, for somebody said --insecure."""
        self._gate = gate
        self._open = open_
        self._anywhere = anywhere
        self._secure = secure
        # the prefix has browsers take it from this host alone, over TLS alone
        self._cookie = "__Host-hangdog" if secure else "hangdog"

    def person(self, request: HTTPConnection) -> Person:
        """Who asks; raises NotAllowed when that is not known."""
        stated = once(request.headers.items())
        cookie = request.cookies.get(self._cookie)
        if "authorization" not in stated and cookie:
            stated["authorization"] = f"Bearer {cookie}"
        # a name that leads here but is not ours: a page of somebody else's that had it resolve to this machine
        named = self._anywhere or is_loopback(f"{request.url.hostname or ''}:0")
        open_ = self._open and named
        return self._gate.known(stated, self._origin(request) if open_ else From(_peer(request)), NOBODY, open_)

    def _origin(self, request: HTTPConnection) -> From:
        own = request.scope.get("server")
        if request.client is None or own is None or own[1] is None:
            return From(_peer(request))
        return self._gate.user(_peer(request), (request.client.host, request.client.port), (own[0], own[1]))

    async def refused(self, what: str, request: HTTPConnection, error: NotAllowed) -> None:
        """Counts that somebody is refused, and logs and records it as over gRPC."""
        await self._gate.tries.refused(what, _peer(request), error)

    def checked(self, token: str, request: HTTPConnection) -> Person:
        """Whose token this is; raises NotAllowed."""
        return self._gate.known({"authorization": f"Bearer {token}"}, From(_peer(request)), NOBODY, False)

    def keep(self, response: Response, token: str) -> None:
        """Has the browser show this token from now on: to us alone, and not to scripts."""
        response.set_cookie(
            self._cookie, token, max_age=KEPT_S, path="/", secure=self._secure, httponly=True, samesite="lax"
        )

    def drop(self, response: Response) -> None:
        """Has the browser forget it."""
        response.delete_cookie(self._cookie, path="/", secure=self._secure, httponly=True, samesite="lax")


def require_own(headers: Mapping[str, str]) -> None:
    """Raises NotAllowed where a browser was made to ask by a page that is not ours."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    foreign = origin is not None and urlsplit(origin).netloc != headers.get("host", "")
    if foreign or site not in (None, "same-origin", "none"):
        raise NotAllowed(
            "another site's page asked for this",
            "open the page of this server and ask there",
            code="request-from-another-site",
        )


def inside(path: str) -> str:
    """Where to go after a login, if it is a page of ours; else the first one."""
    ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and len(path) < 500
    return path if ours else "/"


def _peer(request: HTTPConnection) -> str:
    """The peer as gRPC writes it, for the audit log and for proxies that are known by their address."""
    if request.client is None:
        return "unknown"
    host, port = request.client.host, request.client.port
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
