"""Errors on the wire: ours come back as they left, gRPC's own are told apart, and nobody waits for a dead port."""

import socket
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import NoReturn

import grpc
import pytest

from hangdog_models.errors import HangdogError, OurFault, ServerUnreachable, UnreadableEvidence, WrongUse
from hangdog_proto.client import errors
from hangdog_proto.client.incidents import Client
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import IncidentsServicer, add_IncidentsServicer_to_server
from support.refused import refused


class Odd(WrongUse):
    """An error the wire does not know."""


class Refusing(IncidentsServicer):
    """A server that answers everything with one error, or with one incident."""

    def __init__(self, answer: HangdogError | grpc.StatusCode | pb.Incident) -> None:
        self.answer = answer

    def Get(self, request: pb.GetRequest, context: grpc.ServicerContext) -> pb.Incident:
        if isinstance(self.answer, pb.Incident):
            return self.answer
        if isinstance(self.answer, HangdogError):
            code, words, metadata = errors.to_grpc(self.answer)
            context.set_trailing_metadata(metadata)
            context.abort(code, words)
        context.abort(self.answer, "in its own words")

    def List(self, request: object, context: object) -> NoReturn:
        raise NotImplementedError

    Snapshot = Machines = Mentions = Report = Bundle = Actions = Act = Respond = Communicators = List


@contextmanager
def serving(answer: HangdogError | grpc.StatusCode | pb.Incident | None) -> Iterator[Client]:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    if answer is not None:
        add_IncidentsServicer_to_server(Refusing(answer), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Client(f"127.0.0.1:{port}") as client:
        yield client
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WrongUse("naïve ✗", "lass das ✓", code="no-such-path"), WrongUse),
        (UnreadableEvidence("what"), UnreadableEvidence),
        (ServerUnreachable("busy", "later"), ServerUnreachable),
        (OurFault("bug"), OurFault),
        (HangdogError("disk full"), HangdogError),
        (Odd("odd", "even"), WrongUse),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_an_error_of_ours_comes_back_as_it_left(error: HangdogError, kind: type[HangdogError]) -> None:
    with serving(error) as client, pytest.raises(HangdogError) as caught:
        client.incident("x")
    assert (type(caught.value), str(caught.value)) == (kind, str(error))
    assert (caught.value.hint, caught.value.code) == (error.hint, error.code)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (grpc.StatusCode.UNAVAILABLE, ServerUnreachable, "server-unreachable"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ServerUnreachable, "server-unreachable"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, WrongUse, "message-too-large"),
        (grpc.StatusCode.UNKNOWN, OurFault, "server-failed"),
    ],
)
def test_what_grpc_says_is_told_apart(status: grpc.StatusCode, kind: type[HangdogError], code: str) -> None:
    with serving(status) as client, refused(code, kind, "in its own words"):
        client.incident("x")


def test_another_server_than_ours_is_not_ours() -> None:
    with serving(None) as client, refused("not-a-hangdog-server", ServerUnreachable):
        client.incident("x")


def test_a_verdict_of_another_version_is_our_fault() -> None:
    strange = pb.Incident(verdict_json='{"schema": "hangdog.verdict/9"}')
    with serving(strange) as client, refused("unreadable-answer", OurFault, "hangdog.verdict/9"):
        client.incident("x")


def test_nobody_at_the_address_says_where_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:3128")  # a proxy to the outside must not be asked
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            Client(address) as client,
            refused("server-unreachable", ServerUnreachable, address) as caught,
        ):
            next(client.snapshot())
    assert "hangdog server" in caught.value.hint
