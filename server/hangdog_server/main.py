"""Runs the server until it is told to stop; the one place that reads the clock and wires the rooms of the server."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from hangdog_models.errors import ServerUnreachable, WrongUse
from hangdog_proto.generated.hangdog_pb2_grpc import add_AgentsServicer_to_server, add_IncidentsServicer_to_server
from hangdog_server.desk import Desk
from hangdog_server.fleet import Fleet
from hangdog_server.incident import Means
from hangdog_server.ingest import Agents, Incidents
from hangdog_server.judging import Judge
from hangdog_server.records import Records
from hangdog_server.retention import Retention
from hangdog_server.returns import Returns
from hangdog_server.sentry import Sentry
from hangdog_server.settings import Settings
from hangdog_server.store import Store
from hangdog_server.vigil import Vigil

#: Hosts that only this machine reaches.
LOOPBACK = ("127.", "localhost:", "[::1]:")

log = logging.getLogger(__name__)
_DEFAULTS = Settings()


async def serve(
    listen: str, where: Path | str, judge: Judge, announce: Callable[[str], None], settings: Settings = _DEFAULTS
) -> None:
    """Serves on `listen` (`HOST:PORT`, port 0: any free one) upon the store `where` (a file, or a URL of PostgreSQL) until told to stop.

    `announce` is given the address once agents can connect. Raises HangdogError when it cannot listen, or the store not open.
    """
    clock = time.time  # noqa: TID251  # this is the main module that passes the clock down
    store = Store(where, settings.store_s)
    try:
        async with running(listen, Means(Fleet(settings), store, judge, clock), settings) as address:
            stop = _stopped()
            announce(address)
            await stop.wait()
            log.info("stopping")
    finally:
        store.close()


@asynccontextmanager
async def running(listen: str, means: Means, settings: Settings) -> AsyncIterator[str]:
    """A server at the address given, from its first connection to its graceful end."""
    for name in await means.store.abandon(means.clock(), "the server ended before there was a verdict"):
        log.warning("incident %s was unfinished when the server ended: marked failed", name)
    desk, vigil, returns = Desk(means, settings), Vigil(), Returns(means, settings)
    await returns.resume()
    records = Records(means.store, settings, means.clock)
    server = grpc.aio.server(options=_options(settings))
    add_AgentsServicer_to_server(Agents(means.fleet, desk, vigil, returns, settings), server)
    add_IncidentsServicer_to_server(Incidents(means.fleet, desk, means.store, records, settings), server)
    address = _bound(server, listen)
    await server.start()
    if not address.startswith(LOOPBACK):
        log.warning("listening on %s: whoever reaches it may ask for captures and read verdicts", address)
    watch = asyncio.create_task(Sentry(vigil, means.fleet, desk).keep(), name="watch over the jobs")
    pruning = asyncio.create_task(Retention(means.store, settings, means.clock).keep(), name="retention")
    try:
        yield address
    finally:
        watch.cancel()
        pruning.cancel()
        await asyncio.gather(watch, pruning, return_exceptions=True)
        means.fleet.end(ServerUnreachable("the server was stopped"))
        await desk.close()
        await returns.close()
        await server.stop(settings.grace_s)


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        (
            "grpc.so_reuseport",
            0,
        ),  # gRPC's default lets two servers listen on one port, and each hear half of the agents
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_concurrent_streams", settings.max_machines),
        ("grpc.keepalive_time_ms", int(settings.heartbeat_s * 2000)),  # an agent without power says nothing: ask
        ("grpc.keepalive_timeout_ms", int(settings.heartbeat_s * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 4000),  # agents and people ask likewise, every 10 s
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _bound(server: grpc.aio.Server, listen: str) -> str:
    """Binds the server; gives the address with the port it really has."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise WrongUse(f"{listen!r} is no address to listen on", "write HOST:PORT, as in 127.0.0.1:7411")
    try:
        bound = server.add_insecure_port(listen)
    except RuntimeError as error:  # grpc's way to say that the address is taken, or none of this machine's
        raise WrongUse(
            f"cannot listen on {listen}", "is another server running there? choose another --listen"
        ) from error
    return f"{host}:{bound}"


def _stopped() -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets; a second one ends the process at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    return stop
