"""Who may ask what: every request of every service against what its peer showed; what nobody thought of is refused."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError

from hangdog_models.errors import HangdogError, NotAllowed, WrongUse
from hangdog_proto.client import errors
from hangdog_proto.deny_list import DenyList
from hangdog_server.auth import local_user, relayed_peer
from hangdog_server.auth.audit_log import AuditEntry, AuditLog
from hangdog_server.auth.local_user import LocalUsers
from hangdog_server.auth.peer_certificates import Certificates
from hangdog_server.auth.permissions import AGENT, GRPC, KNOWN
from hangdog_server.auth.refused_requests import Tries, address
from hangdog_server.auth.relayed_peer import From
from hangdog_server.auth.tls import Peer
from hangdog_server.auth.tokens import Role, Tokens
from hangdog_server.protocol.rejections import AgentRejected, Unauthorised
from hangdog_server.telemetry import SILENT

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:  # generic in the stubs alone
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    Interceptor: TypeAlias = grpc.aio.ServerInterceptor[Any, Any]
else:
    Handler, Interceptor = grpc.RpcMethodHandler, grpc.aio.ServerInterceptor
#: What a trusted proxy says of whom it lets through.
USER, ROLE = "x-hangdog-user", "x-hangdog-role"
#: Characters of a name that a proxy gives: an e-mail address has 254 at most.
_USER = 254
_HINT = "ask who runs the server for `hangdog token new`, and set HANGDOG_TOKEN; docs/security.md"

_SOCKET_HINT = "who runs the server lets a group in with --socket-group, or makes a token; docs/server.md"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who asks: a name, what they may do, and how that is known (`token`, `proxy`, `user` of this machine, `open`)."""

    name: str
    role: Role
    by: str
    peer: str

    def audit_entry(self, what: str, job: str, why: str) -> AuditEntry:
        """Something they have the server do, for the audit log."""
        return AuditEntry(what, self.name, self.role.word, self.by, self.peer, job, why)

    def require(self, needed: Role) -> None:
        """Raises NotAllowed unless they may."""
        if self.role < needed:
            what = f"{self.name} may {self.role.word}, and this takes {needed.word}"
            raise Unauthorised(
                AgentRejected.ROLE,
                what,
                "hangdog token new --role makes one that may; docs/security.md",
                code="role-too-low",
            )


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A message of a stream and its bytes on the wire: to ask the message itself costs more than to have read it."""

    message: object
    size: int


class Authorizer(Interceptor):
    """Stands before every request. `open_` lets whoever reaches the server look, until there are tokens.

    `believing` (--insecure) lets them do everything. Users of this machine may do what `users` says of them: by the unix
    socket always, over loopback while it is open. `proxies` are the names in the certificates of trusted proxies
    (`client NAME`), or their addresses.
    """

    def __init__(
        self, open_: bool, mutual: bool, tokens: Tokens, proxies: Iterable[str], patience_s: float,
        denied: DenyList | None = None, trust_dns_names: bool = False,
        believing: bool = False, users: LocalUsers | None = None,
    ) -> None:  # fmt: skip
        """`denied` are certificates that count no longer; `trust_dns_names` as in `tls.peer`.

        `believing`: whoever reaches an open server may do everything. `users` are those of this machine who are known.
        """
        self._open = open_
        self._believing = believing
        self._closed = False
        self._users = users or LocalUsers()
        self._mutual = mutual
        self._tokens = tokens
        self._proxies = frozenset(proxies)
        self._patience_s = patience_s
        self.certificates = Certificates(denied or DenyList(None), trust_dns_names)
        #: Who hears of what is refused; the server that runs puts its own here.
        self.tries = Tries(SILENT, AuditLog(None, lambda: 0.0))

    def person(self, context: Context) -> Person:
        """Who asks; raises NotAllowed when that is not known."""
        stated, origin = once(context.invocation_metadata()), relayed_peer.read(context.peer())
        return self.known(stated, origin, self.certificates.shown(context.auth_context()), self._open)

    def close(self) -> None:
        """From now on nobody is let in for having reached the server: it takes machines out of use."""
        self._open, self._closed = False, True

    def user(self, address: str, peer: tuple[str, int], own: tuple[str, int]) -> From:
        """Where a request over TCP comes from, with the user of this machine who sent it, where it did."""
        caller = None if self._believing or not self._open else local_user.of_loopback(peer, own)
        return From(address, None if caller is None else caller.uid, self._users.role(caller))

    def known(self, stated: Mapping[str, str], origin: From, shown: Peer, open_: bool) -> Person:
        """Who asks, by the headers of a request; `open_`: without tokens, whoever reaches us is heard. Raises NotAllowed."""
        peer = origin.address
        if stated.get(USER) and self._trusts(shown, peer):
            return _proxied(stated, peer)
        token = _bearer(stated)
        if token:
            found = self._tokens.find(token)
            if found is None:
                raise Unauthorised(
                    AgentRejected.TOKEN,
                    "this token is unknown, was revoked, or has ended",
                    _HINT,
                    code="token-not-valid",
                )
            return Person(found.name, Role[found.role.upper()], "token", peer)
        reached = open_ and self._open and not self._tokens.look()
        if origin.role and (reached or origin.unix):
            return Person(self._users.name(origin.uid), Role[origin.role.upper()], "user", peer)
        if origin.unix:
            who = "this user" if origin.uid is None else f"uid {origin.uid}"
            raise Unauthorised(
                AgentRejected.NO_TOKEN,
                f"{who} of this machine may do nothing here",
                _SOCKET_HINT,
                code="local-user-denied",
            )
        if reached:
            return Person("whoever reaches the server", Role.ACT if self._believing else Role.VIEW, "open", peer)
        raise Unauthorised(
            AgentRejected.NO_TOKEN, "the server asks for a token, and none was shown", _HINT, code="no-token"
        )

    def who_may(self, needed: Role) -> tuple[str, ...]:
        """Whose tokens allow that now; whom a proxy lets through is not known before they come."""
        return self._tokens.names(needed)

    def machines(self, context: Context) -> Peer | None:
        """What the certificate of an agent says; None where certificates are not asked for. Raises NotAllowed."""
        if not self._mutual:
            origin = relayed_peer.read(context.peer())
            if (origin.unix or self._closed) and origin.role != Role.ACT.word:
                what = "without a certificate, an agent must run as root or as the server's user"
                raise NotAllowed(
                    what,
                    "give server and agents --tls (hangdog certs init); docs/security.md",
                    code="local-user-denied",
                )
            return None
        shown = self.certificates.shown(context.auth_context())
        if not shown.machines:
            what = f"the certificate of {shown.label}" if shown.label else "no certificate"
            advice = "an agent shows one from `hangdog certs machine`"
            if shown.leaf is not None and not shown.leaf.owners:
                advice = "it holds no hangdog:// URI: make one that does, or trust DNS names with --trust-dns-names"
            raise Unauthorised(
                AgentRejected.CERTIFICATE, f"{what} is no machine's", advice, code="no-machine-certificate"
            )
        return shown

    async def intercept_service(  # type: ignore[override]  # a request that nobody handles has no handler
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]], details: Any
    ) -> Handler | None:
        """The handler of a request behind the check that it takes."""
        needed = GRPC.get(details.method)
        if needed is None:
            return _stream(
                self._refusing(
                    Unauthorised(AgentRejected.UNKNOWN, f"there is no {details.method[:100]} here", code="no-such-call")
                )
            )
        handler = await continuation(details)
        return None if handler is None else _stream(self._guarded(details.method, needed, handler), handler)

    def check(self, needed: Role | str, context: Context) -> Peer:
        """Raises NotAllowed unless whoever asks may; gives what their certificate says."""
        shown = self.certificates.shown(context.auth_context())
        if needed == AGENT:
            self.machines(context)
        elif needed == KNOWN:
            if not shown.name:
                self.person(context)
        else:
            assert isinstance(needed, Role)
            self.person(context).require(needed)
        return shown

    def _guarded(self, method: str, needed: Role | str, handler: Handler) -> Callable[[Any, Context], Awaitable[None]]:
        async def guarded(requests: Any, context: Context) -> None:
            """Checks before it reads anything: nobody who may not ask keeps us waiting for what they ask."""
            try:
                shown = self.check(needed, context)
                async with self.certificates.while_it_counts(shown, method):
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
            raise WrongUse(f"no request came within {self._patience_s:g} s", code="request-too-slow") from None
        except DecodeError:
            raise WrongUse("this is not a hangdog request", code="damaged-message") from None
        if request is cast(Any, grpc.aio).EOF:
            raise WrongUse("the stream ended before its request", code="damaged-message")
        return request

    def _refusing(self, error: NotAllowed) -> Callable[[Any, Context], Awaitable[None]]:
        async def refusing(requests: Any, context: Context) -> None:
            await self._refuse("", context, error)

        return refusing

    async def _refuse(self, method: str, context: Context, error: HangdogError) -> None:
        if isinstance(error, NotAllowed):
            await self.tries.refused(method, relayed_peer.read(context.peer()).address, error)
        code, words, metadata = errors.to_grpc(error)
        await context.abort(code, words, metadata)

    def _trusts(self, shown: Peer, peer: str) -> bool:
        return bool(self._proxies) and (shown.name in self._proxies or address(peer) in self._proxies)


def _proxied(stated: Mapping[str, str], peer: str) -> Person:
    name, role = stated[USER], stated.get(ROLE, Role.VIEW.word)
    if len(name) > _USER or not name.isprintable() or role.upper() not in Role.__members__:
        raise Unauthorised(
            AgentRejected.PROXY,
            f"the proxy gives an impossible user or role: {name[:_USER]!r} with role {role[:20]!r}",
            code="wrong-proxy-headers",
        )
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


def _bearer(stated: Mapping[str, str]) -> str:
    kind, _, token = stated.get("authorization", "").partition(" ")
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
    return (lambda data: ClientCredentials(read(data), len(data))) if handler.request_streaming else read


async def _answered(handler: Handler, request: Any, context: Context) -> None:
    """Has a handler answer, whether it yields its answers or writes them itself."""
    answers = cast(Any, handler.unary_stream)(request, context)
    if not hasattr(answers, "__aiter__"):
        await answers
        return
    async with contextlib.aclosing(answers):  # who hangs up ends it now, not when it is found to be garbage
        async for answer in answers:
            await context.write(answer)
