"""Counts the messages of every call and their bytes, where gRPC turns bytes into messages: no other code knows of it."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from hangdog_proto.generated import hangdog_pb2 as pb

#: The calls that people make; each is a kind of message of its own.
_CALLS = tuple(method.name for method in pb.DESCRIPTOR.services_by_name["Incidents"].methods)
#: What no kind of ours is: a newer agent's message, another service's.
_OTHER = "other"
#: Both ways with the oneof that tells the kind of a message on an agent's stream.
_WAYS: dict[str, type[pb.FromAgent] | type[pb.ToAgent]] = {"received": pb.FromAgent, "sent": pb.ToAgent}

#: gRPC's handlers are named tuples, of a class that it does not show.
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


@dataclass(slots=True)
class _Sum:
    """Messages of one kind, and their bytes."""

    messages: int = 0
    size: int = 0


class Counting(grpc.aio.ServerInterceptor, Collector):  # type: ignore[type-arg]  # generic for the stubs only
    """Counts into the registry given: on the event loop alone, in plain numbers, for there are thousands a second."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ways = {way: {kind: _Sum() for kind in _kinds(way)} for way in _WAYS}
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What was counted, when it is asked for."""
        labels = ("direction", "kind")
        messages = CounterMetricFamily("hangdog_messages", "Messages by kind.", labels=labels)
        sizes = CounterMetricFamily("hangdog_message_bytes", "Their bytes, unpacked.", labels=labels)
        for way, kinds in self._ways.items():
            for kind, counted in kinds.items():
                messages.add_metric([way, kind], counted.messages)
                sizes.add_metric([way, kind], counted.size)
        yield from (messages, sizes)

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
        counted = kinds.get(kind or _OTHER) or kinds[_OTHER]
        counted.messages += 1
        counted.size += size


def _kinds(way: str) -> list[str]:
    bodies = [field.name for field in _WAYS[way].DESCRIPTOR.oneofs_by_name["body"].fields]
    return [*bodies, *(call.lower() for call in _CALLS), _OTHER]
