"""Who may ask what: every request of every service against what its peer showed; what nobody thought of is refused."""

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError

from hangdog_models.errors import HangdogError, NotAllowed, WrongUse
from hangdog_proto import status
from hangdog_server import tls
from hangdog_server.audit import Deed
from hangdog_server.limits import Seldom
from hangdog_server.tls import Peer
from hangdog_server.tokens import Role, Tokens

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:  # generic in the stubs alone
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    Interceptor: TypeAlias = grpc.aio.ServerInterceptor[Any, Any]
else:
    Handler, Interceptor = grpc.RpcMethodHandler, grpc.aio.ServerInterceptor
#: Asked for where any peer is enough that showed a certificate or a token.
KNOWN = "known"
#: Asked for where only a machine's agent is meant; whose it is, is seen once it has said its name.
AGENT = "agent"
#: What each request takes; one that does not stand here is refused whoever asks.
NEEDED: Mapping[str, Role | str] = {
    "/hangdog.v1.Agents/Connect": AGENT,
    "/hangdog.v1.Incidents/Snapshot": Role.TRIGGER,
    "/hangdog.v1.Incidents/List": Role.VIEW,
    "/hangdog.v1.Incidents/Get": Role.VIEW,
    "/hangdog.v1.Incidents/Machines": Role.VIEW,
    "/hangdog.v1.Incidents/Ledger": Role.VIEW,
    "/hangdog.v1.Incidents/Bundle": Role.VIEW,
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
    "/grpc.health.v1.Health/Check": KNOWN,
    "/grpc.health.v1.Health/List": KNOWN,
    "/grpc.health.v1.Health/Watch": KNOWN,
}
#: What a trusted proxy says of whom it lets through.
USER, ROLE = "x-hangdog-user", "x-hangdog-role"
#: Characters of a name that a proxy gives: an e-mail address has 254 at most.
_USER = 254
_HINT = "ask who runs the server for `hangdog token new`, and set HANGDOG_TOKEN; docs/security.md"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who asks: a name, what they may do, and how that is known (`token`, `proxy`, `open`)."""

    name: str
    role: Role
    by: str
    peer: str

    def deed(self, what: str, job: str, why: str) -> Deed:
        """Something they have the server do, for the record."""
        return Deed(what, self.name, self.role.word, self.by, self.peer, job, why)

    def require(self, needed: Role) -> None:
        """Raises NotAllowed unless they may."""
        if self.role < needed:
            what = f"{self.name} may {self.role.word}, and this takes {needed.word}"
            raise NotAllowed(what, "hangdog token new --role makes one that may; docs/security.md")


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a stream and its bytes on the wire: to ask the message itself costs more than to have read it."""

    message: object
    size: int


class Gate(Interceptor):
    """Stands before every request. `open_` lets whoever reaches the server do everything, until there are tokens.

    `proxies` are the names in the certificates of trusted proxies (`client NAME`), or their addresses.
    """

    def __init__(self, open_: bool, mutual: bool, tokens: Tokens, proxies: Iterable[str], patience_s: float) -> None:
        self._open = open_
        self._mutual = mutual
        self._tokens = tokens
        self._proxies = frozenset(proxies)
        self._patience_s = patience_s
        self._seldom = Seldom()

    def person(self, context: Context) -> Person:
        """Who asks; raises NotAllowed when that is not known."""
        said = once(context.invocation_metadata())
        return self.known(said, context.peer(), tls.peer(context.auth_context()), self._open)

    def known(self, said: Mapping[str, str], peer: str, shown: Peer, open_: bool) -> Person:
        """Who asks, by the headers of a request; `open_`: without tokens, whoever reaches us may. Raises NotAllowed."""
        if said.get(USER) and self._trusts(shown, peer):
            return _proxied(said, peer)
        token = _bearer(said)
        if token:
            found = self._tokens.find(token)
            if found is None:
                raise NotAllowed("this token is unknown, was revoked, or has ended", _HINT)
            return Person(found.name, Role[found.role.upper()], "token", peer)
        if open_ and self._open and not self._tokens.look():
            return Person("whoever reaches the server", Role.ACT, "open", peer)
        raise NotAllowed("the server asks for a token, and none was shown", _HINT)

    def who_may(self, needed: Role) -> tuple[str, ...]:
        """Whose tokens allow that now; whom a proxy lets through is not known before they come."""
        return self._tokens.names(needed)

    def machines(self, context: Context) -> Peer | None:
        """What the certificate of an agent says; None where certificates are not asked for. Raises NotAllowed."""
        if not self._mutual:
            return None
        shown = tls.peer(context.auth_context())
        if not shown.machines:
            what = f"the certificate of {shown.name}" if shown.name else "no certificate"
            raise NotAllowed(f"{what} is no machine's", "an agent shows one from `hangdog certs machine`")
        return shown

    async def intercept_service(  # type: ignore[override]  # a request that nobody handles has no handler
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]], details: Any
    ) -> Handler | None:
        """The handler of a request behind the check that it takes."""
        needed = NEEDED.get(details.method)
        if needed is None:
            return _stream(self._refusing(f"there is no {details.method[:100]} here"))
        handler = await continuation(details)
        return None if handler is None else _stream(self._guarded(details.method, needed, handler), handler)

    def check(self, needed: Role | str, context: Context) -> None:
        """Raises NotAllowed unless whoever asks may."""
        if needed == AGENT:
            self.machines(context)
        elif needed == KNOWN:
            if not tls.peer(context.auth_context()).name:
                self.person(context)
        else:
            assert isinstance(needed, Role)
            self.person(context).require(needed)

    def _guarded(self, method: str, needed: Role | str, handler: Handler) -> Callable[[Any, Context], Awaitable[None]]:
        async def guarded(requests: Any, context: Context) -> None:
            """Checks before it reads anything: nobody who may not ask keeps us waiting for what they ask."""
            try:
                self.check(needed, context)
                if handler.request_streaming:
                    await cast(Any, handler.stream_stream)(requests, context)
                    return
                request = await self._request(context)
                if handler.response_streaming:
                    await _answered(handler, request, context)
                else:
                    await context.write(await cast(Any, handler.unary_unary)(request, context))
            except HangdogError as error:
                await self._refuse(method, context, error)

        return guarded

    async def _request(self, context: Context) -> Any:
        try:
            async with asyncio.timeout(self._patience_s):
                request = await context.read()
        except TimeoutError:
            raise WrongUse(f"no request came within {self._patience_s:g} s") from None
        except DecodeError:
            raise WrongUse("this is no request of hangdog's") from None
        if request is cast(Any, grpc.aio).EOF:
            raise WrongUse("the stream ended before its request")
        return request

    def _refusing(self, what: str) -> Callable[[Any, Context], Awaitable[None]]:
        async def refusing(requests: Any, context: Context) -> None:
            await self._refuse("", context, NotAllowed(what))

        return refusing

    async def _refuse(self, method: str, context: Context, error: HangdogError) -> None:
        if isinstance(error, NotAllowed):
            host = address(context.peer())
            if self._seldom.tell(host, str(error), asyncio.get_running_loop().time()):
                log.warning("%s is refused %s: %s", host, method or "a request", error)
        code, words, metadata = status.written(error)
        await context.abort(code, words, metadata)

    def _trusts(self, shown: Peer, peer: str) -> bool:
        return bool(self._proxies) and (shown.name in self._proxies or address(peer) in self._proxies)


def address(peer: str) -> str:
    """The address in gRPC's word for a peer (`ipv4:10.0.0.5:33412`), without its port; the word itself when it is another."""
    kind, _, rest = peer.partition(":")
    host = rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
    try:
        return str(ipaddress.ip_address(host)) if kind in ("ipv4", "ipv6") else peer
    except ValueError:
        return peer


def _proxied(said: Mapping[str, str], peer: str) -> Person:
    name, role = said[USER], said.get(ROLE, Role.VIEW.word)
    if len(name) > _USER or not name.isprintable() or role.upper() not in Role.__members__:
        raise NotAllowed(f"the proxy says what cannot be: {name[:_USER]!r} with role {role[:20]!r}")
    return Person(name, Role[role.upper()], "proxy", peer)


def once(metadata: Any) -> dict[str, str]:
    """The words of a request's metadata; of a key that is given twice none counts."""
    found: dict[str, str] = {}
    twice = set()
    for key, value in metadata or ():
        if key in found:
            twice.add(key)
        if isinstance(value, str):
            found[key] = value
    return {key: value for key, value in found.items() if key not in twice}


def _bearer(said: Mapping[str, str]) -> str:
    kind, _, token = said.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _stream(behaviour: Callable[[Any, Context], Awaitable[None]], like: Handler | None = None) -> Handler:
    """A handler that reads and writes its stream itself: on the wire a single message is a stream of one."""
    made = grpc.stream_stream_rpc_method_handler(
        cast(Any, behaviour),
        request_deserializer=_reading(like) if like else None,
        response_serializer=like.response_serializer if like else None,
    )
    return made


def _reading(handler: Handler) -> Callable[[bytes], Any]:
    """How a handler's messages are read: a single one as it is, those of a stream with their size."""
    read = cast(Any, handler.request_deserializer)
    return (lambda data: Said(read(data), len(data))) if handler.request_streaming else read


async def _answered(handler: Handler, request: Any, context: Context) -> None:
    """Has a handler answer, whether it yields its answers or writes them itself."""
    answers = cast(Any, handler.unary_stream)(request, context)
    if not hasattr(answers, "__aiter__"):
        await answers
        return
    async with contextlib.aclosing(answers):  # who hangs up ends it now, not when it is found to be garbage
        async for answer in answers:
            await context.write(answer)
