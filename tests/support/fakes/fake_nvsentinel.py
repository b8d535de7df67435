"""A pretend platform connector of NVSentinel: a real gRPC server on a unix socket that keeps the bytes it is sent.

NVSentinel runs in a cluster with its database and cannot run here. The call's path is written out, not taken from our own
.proto, and what comes is kept as bytes, so that tests read the wire by NVSentinel's numbers.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

#: The call of data-models/protobufs/health_event.proto (github.com/NVIDIA/NVSentinel, November 2026).
SERVICE, CALL = "datamodels.PlatformConnector", "HealthEventOccurredV1"
#: That file's fields: message -> field -> number and type (a message's name, `map`, or a scalar; `*` before it: repeated).
FIELDS = {
    "HealthEvents": {"version": (1, "uint32"), "events": (2, "*HealthEvent")},
    "HealthEvent": {
        "version": (1, "uint32"), "agent": (2, "string"), "componentClass": (3, "string"), "checkName": (4, "string"),
        "isFatal": (5, "bool"), "isHealthy": (6, "bool"), "message": (7, "string"), "recommendedAction": (8, "int32"),
        "errorCode": (9, "*string"), "entitiesImpacted": (10, "*Entity"), "metadata": (11, "*Pair"),
        "generatedTimestamp": (12, "Timestamp"), "nodeName": (13, "string"), "processingStrategy": (16, "int32"),
    },
    "Entity": {"entityType": (1, "string"), "entityValue": (2, "string")},
    "Pair": {"key": (1, "string"), "value": (2, "string")},
    "Timestamp": {"seconds": (1, "int64"), "nanos": (2, "int32")},
}  # fmt: skip
CONTACT_SUPPORT = 5
EXECUTE_REMEDIATION, STORE_ONLY = 1, 2


def _theirs() -> type[Message]:
    """HealthEvents, by the table above and nothing of ours."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="theirs.proto", package="theirs", syntax="proto3")
    for name, members in FIELDS.items():
        message = file.message_type.add(name=name)
        for field_, (number, kind) in members.items():
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            made = message.field.add(name=field_, number=number, label=label)
            if kind.lstrip("*") in FIELDS:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".theirs.{kind.lstrip('*')}"
            else:
                made.type = kinds.Type.Value(f"TYPE_{kind.lstrip('*').upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("theirs.HealthEvents"))


@dataclass
class Connector:
    """`events` came, the oldest first; the next are answered by `refuses`, or never while it is `mute`."""

    socket: Path
    events: list[Message] = field(default_factory=list)
    refuses: grpc.StatusCode | None = None
    mute: bool = False

    async def hear(self, data: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        if self.mute:
            await asyncio.Event().wait()
        if self.refuses is not None:
            await context.abort(self.refuses, "what\nit says")
        self.events += _theirs().FromString(data).events  # type: ignore[attr-defined]  # made at run time
        return b""


@asynccontextmanager
async def serving(socket: Path) -> AsyncIterator[Connector]:
    connector = Connector(socket)
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(connector.hear)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {CALL: handler}),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield connector
    finally:
        await server.stop(None)
