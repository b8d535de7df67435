"""What is passed on to gRPC arrives whole, however slowly either end reads, and ends when either end does."""

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hangdog_server.auth import relayed_peer
from hangdog_server.ports.admission import Admission, AdmissionLimits
from hangdog_server.ports.hidden_socket import Inner
from hangdog_server.ports.listeners import listeners
from hangdog_server.ports.relay import Relay
from hangdog_server.ports.relayed_connection import Way

MUCH = 8 << 20
BOUNDS = AdmissionLimits(served=8, served_each=8, unserved=8, unserved_each=8, slots=4, patience_s=60.0)


@contextmanager
def relayed() -> Iterator[tuple[int, socket.socket, Relay]]:
    """The port that is relayed, and the socket where a server would listen."""
    inner, relay = Inner(), Relay()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(inner.path)
        server.listen()
        sockets = listeners("127.0.0.1", 0)
        relay.add(
            Way(
                sockets,
                Admission(BOUNDS),
                inner.hide(),
                False,
                lambda _: relayed_peer.From("ipv4:10.0.0.1:5", 7, "act"),
            )
        )
        port = sockets[0].getsockname()[1]
        relay.start()
        try:
            yield port, server, relay
        finally:
            relay.close()
            inner.close()


def test_much_is_passed_on_whole_both_ways_and_with_the_word_of_who_sent_it() -> None:
    said = os.urandom(MUCH)
    with relayed() as (port, server, _), socket.create_connection(("127.0.0.1", port), 30) as client:
        sending = threading.Thread(target=client.sendall, args=(said,))
        sending.start()
        ours, name = server.accept()
        with ours:
            found = name.decode().removeprefix("\0")
            assert relayed_peer.read(f"unix-abstract:{found}") == relayed_peer.From("ipv4:10.0.0.1:5", 7, "act")
            heard = b""
            while len(heard) < MUCH:
                heard += ours.recv(1 << 20)
            sending.join()

            def answer() -> None:
                ours.sendall(heard)
                ours.close()

            back = threading.Thread(target=answer)
            back.start()
            whole = hashlib.sha256()
            while part := client.recv(10_000):
                whole.update(part)
            back.join()
    assert whole.digest() == hashlib.sha256(said).digest(), "also what was on its way when the server hung up"


@pytest.mark.parametrize("first", ["client", "server", "relay"])
def test_when_one_end_is_closed_the_other_one_is(first: str) -> None:
    with relayed() as (port, server, relay), socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(b"x")
        ours, _ = server.accept()
        with ours:
            ours.settimeout(30)
            assert ours.recv(1) == b"x"
            if first == "relay":
                relay.close()
            elif first == "server":
                ours.close()
            else:
                client.close()
            assert (ours if first == "client" else client).recv(1) == b""


def test_nobody_else_reaches_what_grpc_listens_on() -> None:
    inner = Inner()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(inner.path)
        server.listen()
        hidden = inner.hide()
        with socket.socket(socket.AF_UNIX) as ours:
            ours.connect(hidden)
        if (child := os.fork()) == 0:  # its folder is gone, and another process' /proc/self is another one
            os.closerange(3, 1000)
            with socket.socket(socket.AF_UNIX) as theirs:
                os._exit(0 if theirs.connect_ex(hidden) else 1)
        assert os.waitpid(child, 0)[1] == 0
    inner.close()
