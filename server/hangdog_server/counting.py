"""Counts the messages of every call and their bytes, where gRPC turns bytes into messages: no other code knows of it."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, Counter

from hangdog_proto.generated import hangdog_pb2 as pb

#: The calls that people make; each is a kind of message of its own.
_CALLS = tuple(method.name for method in pb.DESCRIPTOR.services_by_name["Incidents"].methods)
#: What no kind of ours is: a newer agent's message, another service's.
_OTHER = "other"
#: Both ways with the oneof that tells the kind of a message on an agent's stream.
_WAYS: dict[str, type[pb.FromAgent] | type[pb.ToAgent]] = {"received": pb.FromAgent, "sent": pb.ToAgent}

#: gRPC's handlers are named tuples, of a class that it does not show.
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


class Counting(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic for the stubs only
    """Counts into the registry given; costs one look into a dictionary for each message."""

    def __init__(self, registry: CollectorRegistry) -> None:
        messages = Counter("hangdog_messages", "Messages by kind.", ["direction", "kind"], registry=registry)
        sizes = Counter("hangdog_message_bytes", "Their bytes, unpacked.", ["direction", "kind"], registry=registry)
        self._ways: dict[str, dict[str, tuple[Counter, Counter]]] = {
            way: {kind: (messages.labels(way, kind), sizes.labels(way, kind)) for kind in _kinds(way)} for way in _WAYS
        }

    async def intercept_service(self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        call = handler_call_details.method.rpartition("/")[2]
        return handler._replace(
            request_deserializer=self._reading(handler.request_deserializer, call),
            response_serializer=self._writing(handler.response_serializer, call),
        )

    def _reading(self, read: Callable[[bytes], Any] | None, call: str) -> Callable[[bytes], Any]:
        def counted(raw: bytes) -> Any:
            message = read(raw) if read is not None else raw
            self._count("received", message, call, len(raw))
            return message

        return counted

    def _writing(self, write: Callable[[Any], bytes] | None, call: str) -> Callable[[Any], bytes]:
        def counted(message: Any) -> bytes:
            raw: bytes = write(message) if write is not None else message
            self._count("sent", message, call, len(raw))
            return raw

        return counted

    def _count(self, way: str, message: Any, call: str, size: int) -> None:
        kind = message.WhichOneof("body") if isinstance(message, _WAYS[way]) else call.lower()
        kinds = self._ways[way]
        messages, sizes = kinds.get(kind or _OTHER) or kinds[_OTHER]
        messages.inc()
        sizes.inc(size)


def _kinds(way: str) -> list[str]:
    bodies = [field.name for field in _WAYS[way].DESCRIPTOR.oneofs_by_name["body"].fields]
    return [*bodies, *(call.lower() for call in _CALLS), _OTHER]
