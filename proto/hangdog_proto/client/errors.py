"""Our errors on their way over the wire: a gRPC status code for every program, and class, code and hint for our own."""

import grpc

from hangdog_models.errors import (
    HangdogError,
    NotAllowed,
    OurFault,
    ServerUnreachable,
    UnreadableBundle,
    UnreadableEvidence,
    WrongUse,
)
from hangdog_proto.client.server_auth import date_hint

#: Trailing metadata that name the class of an error and its code, and carry its hint (`-bin`: any UTF-8).
CLASS, CODE, HINT = "hangdog-error", "hangdog-code", "hangdog-hint-bin"

Metadata = tuple[tuple[str, str | bytes], ...]

_CODES: dict[type[HangdogError], grpc.StatusCode] = {
    WrongUse: grpc.StatusCode.INVALID_ARGUMENT,
    UnreadableBundle: grpc.StatusCode.INVALID_ARGUMENT,
    UnreadableEvidence: grpc.StatusCode.INVALID_ARGUMENT,
    ServerUnreachable: grpc.StatusCode.UNAVAILABLE,
    OurFault: grpc.StatusCode.INTERNAL,
    NotAllowed: grpc.StatusCode.PERMISSION_DENIED,
    HangdogError: grpc.StatusCode.INTERNAL,
}
_CLASSES = {kind.__name__: kind for kind in _CODES}
#: Codes gRPC itself gives when nobody answers, or somebody who is no hangdog server.
_UNREACHABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
#: Codes that a proxy before the server gives by itself.
_DENIED = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}


def to_grpc(error: HangdogError) -> tuple[grpc.StatusCode, str, Metadata]:
    """An error as a status code, its words and trailing metadata; an unlisted class travels as the one it derives from."""
    kind = next(kind for kind in type(error).__mro__ if kind in _CODES)
    return _CODES[kind], str(error), ((CLASS, kind.__name__), (CODE, error.code), (HINT, error.hint.encode()))


def from_grpc(error: grpc.RpcError, address: str, tls: bool = False) -> HangdogError:
    """The error the server at `address` meant, or what it means that gRPC itself failed; `tls` says how it was asked."""
    call = error if isinstance(error, grpc.Call) else None
    code, message = (call.code(), call.details() or "") if call else (None, str(error))
    metadata: dict[str, str | bytes] = dict(call.trailing_metadata() or ()) if call else {}
    kind = _CLASSES.get(str(metadata.get(CLASS)))
    if kind is not None:
        hint = metadata.get(HINT, b"")
        words = hint.decode(errors="replace") if isinstance(hint, bytes) else hint
        return kind(message, words, code=str(metadata.get(CODE, "")))
    if code in _UNREACHABLE:
        start = "start one with `hangdog server`, or name another with --server or HANGDOG_SERVER"
        if date_hint(message):
            start = date_hint(message)
        elif tls:
            start += "; or its certificate and that of --tls are of different authorities: hangdog certs show DIR"
        what = f"no server answers at {address}{' over TLS' * tls} ({message})"
        return ServerUnreachable(what, start, code="server-unreachable")
    if code in _DENIED:
        what = f"{address} denies access ({message})"
        return NotAllowed(what, "is a proxy between this machine and the server?", code="denied-by-proxy")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        what = f"the program at {address} is not a hangdog server, or one of another version"
        return ServerUnreachable(what, code="not-a-hangdog-server")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        what = f"the server at {address} does not accept a message of this size ({message})"
        return WrongUse(what, code="message-too-large")
    what = f"the server at {address} failed: {code.name if code else ''} {message}"
    return OurFault(what, "its log says more", code="server-failed")
