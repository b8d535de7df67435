"""Crowds of connections that ask nothing, before the ports of pages, metrics and gRPC: they cost little and keep nobody out."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog_models.errors import HangdogError
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress
from hangdog_server.web import web_server
from support.servers.browsed import browsed
from support.servers.cast import PATIENT, stage
from support.servers.guarded import made

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

#: What a crowd may cost, and how long a page may take meanwhile.
MOST_MIB, SOON_S = 50, 1.0
#: A page is asked for so often, and the best counts: this machine has other work, too.
TRIES = 5
HALF = b"GET /login HTTP/1.1\r\nHost: x\r\n"
#: The preface of HTTP/2, and half of what has to follow it.
HALF_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x06"


@contextmanager
def many(port: int, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections from as many addresses as there are hundreds of them."""
    with ExitStack() as stack:
        opened = []
        for number in range(count):
            one = stack.enter_context(socket.socket())
            one.bind((f"127.0.1.{number // 100 + 1}", 0))
            one.connect(("127.0.0.1", port))
            if said:
                with contextlib.suppress(OSError):
                    one.send(said)
            opened.append(one)
        yield opened


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("said", [HALF, b""], ids=["half requests", "silence"])
async def test_connections_that_ask_nothing_keep_nobody_from_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """350 half requests had everybody answered 503."""
    monkeypatch.setattr(web_server, "HEAD_S", 60.0, raising=False)  # nothing passes because somebody's time was over
    async with browsed(tmp_path / "s.db") as by:
        before = files()
        with many(int(by.address.rpartition(":")[2]), 700, said) as opened:
            assert (await by.http.get("/login")).status_code in (200, 303)
            assert files() - before - len(opened) <= web_server.WAITING + web_server.SLOTS + 10


@pytest.mark.parametrize("said", [HALF_HTTP2, b""], ids=["half a preface", "silence"])
async def test_connections_that_prove_nothing_keep_nobody_from_the_server(tmp_path: Path, said: bytes) -> None:
    few = replace(PATIENT, max_unproven=64, max_unproven_each=32, max_handshakes=8)
    async with stage(tmp_path / "s.db", settings=few) as on:
        before = files()
        with many(int(on.address.rpartition(":")[2]), 300, said) as opened:
            assert await on.machines() == ()
            await asyncio.sleep(0.5)  # the relay has accepted all that it will
            assert files() - before - len(opened) <= 64 + 2 * 8 + 10
            assert await on.machines() == ()


async def test_a_request_whose_head_never_ends_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first on a connection, and one that follows an answer: a byte now and then does not keep it open."""
    monkeypatch.setattr(web_server, "HEAD_S", 0.5)
    async with browsed(tmp_path / "s.db") as by:
        port = int(by.address.rpartition(":")[2])
        for first in (b"", b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(first)
            if first:
                assert b"HTTP/1.1 " in await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(20):
                with contextlib.suppress(ConnectionError):
                    while not reader.at_eof():
                        writer.write(b"G")
                        await writer.drain()
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(0.1):
                                while await reader.read(4096):
                                    pass
            writer.close()


@dataclass
class Attacked:
    """A server in a process of its own, and its three ports."""

    process: asyncio.subprocess.Process
    ports: dict[str, int]
    tls: Path | None
    way: ServerAddress

    def mib(self) -> float:
        """What it holds in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    def fetch(self, which: str) -> float:
        """Seconds until a page, the metrics or an answer by gRPC came; 60 where none did."""
        began = time.monotonic()
        try:
            if which == "grpc":
                with Client(self.way) as client:
                    client.serving()
            else:
                tls = self.tls is not None and which == "web"
                context = ssl.create_default_context(cafile=self.way.tls / "ca.pem") if tls and self.way.tls else None
                path = {"web": "login", "metrics": "metrics"}[which]
                url = f"http{'s' * tls}://localhost:{self.ports[which]}/{path}"
                with urllib.request.urlopen(url, timeout=20, context=context) as answer:
                    assert answer.status == 200
        except (OSError, HangdogError):  # whatever it is, nobody was served
            return 60.0
        return time.monotonic() - began

    def soonest(self, which: str) -> float:
        return min(self.fetch(which) for _ in range(TRIES))


@asynccontextmanager
async def attacked(folder: Path, tls: bool) -> AsyncIterator[Attacked]:
    ports = {"web": free_port(), "metrics": free_port()}
    shown = made(folder / "ca") if tls else None
    more = ("--tls", str(shown.home / "server")) if shown else ()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hangdog", "server", "--listen", "127.0.0.1:0", "--store", str(folder / "s.db"),
        "--web", f"127.0.0.1:{ports['web']}", "--metrics", f"127.0.0.1:{ports['metrics']}", *more,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ports["grpc"] = int((await process.stdout.readline()).decode().rpartition(":")[2])
        way = ServerAddress(f"localhost:{ports['grpc']}", shown.client("alice") if shown else None)
        yield Attacked(process, ports, shown.home if shown else None, way)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


@asynccontextmanager
async def crowd(port: int, count: int, said: bytes) -> AsyncIterator[None]:
    """So many connections from 250 addresses, made by processes of their own."""
    each, parts = count // 3, 3
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "support.servers.crowd", str(port), str(each), "250", said.hex(),
            cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for _ in range(parts)
    ]  # fmt: skip
    try:
        for one in started:
            assert one.stdout is not None
            assert (await one.stdout.readline()).startswith(b"here ")
        yield
    finally:
        for one in started:
            one.kill()
            await one.communicate()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("which", ["web", "metrics", "grpc"])
@pytest.mark.parametrize("how", ["30,000 silent", "1,000 half requests"])
async def test_a_crowd_costs_little_and_delays_nobody(tmp_path: Path, which: str, tls: bool, how: str) -> None:
    count = int(how.partition(" ")[0].replace(",", ""))
    half = HALF if which != "grpc" else HALF_HTTP2
    if tls and which != "metrics":
        half = client_hello()[:-1]
    said = half if "half" in how else b""
    async with attacked(tmp_path, tls) as server:
        for port in ("web", "metrics", "grpc"):
            assert server.fetch(port) < 60
        before = server.mib()
        async with crowd(server.ports[which], count, said):
            costs = server.mib() - before
            soon = {port: await asyncio.to_thread(server.soonest, port) for port in ("web", "metrics", "grpc")}
            costs = max(costs, server.mib() - before)
        print(f"{which} {how}{' tls' * tls}: +{costs:.0f} MiB, " + ", ".join(f"{k} {v:.2f} s" for k, v in soon.items()))
        assert costs < MOST_MIB and max(soon.values()) < SOON_S, (costs, soon)


def client_hello() -> bytes:
    """The first words of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    speaking = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        speaking.do_handshake()
    return outgoing.read()
