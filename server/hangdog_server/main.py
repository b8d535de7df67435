"""Runs the server until it is told to stop; the one place that reads the clock and wires the rooms of the server."""

import asyncio
import contextlib
import logging
import resource
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from hangdog_models.actions.caps import Mode
from hangdog_models.errors import ServerUnreachable
from hangdog_proto.generated.hangdog_pb2_grpc import (
    add_AgentsServicer_to_server,
    add_CampaignsServicer_to_server,
    add_IncidentsServicer_to_server,
)
from hangdog_proto.private_files import narrow_file
from hangdog_server.actions.backends.actions_config import Chosen, chosen
from hangdog_server.actions.reconcile import Acting
from hangdog_server.auth.audit_log import Audit, before
from hangdog_server.auth.refused_requests import Tries
from hangdog_server.campaigns import campaign_run
from hangdog_server.campaigns.campaign_registry import CampaignDesk
from hangdog_server.cluster.certificate_renewals import Renewals
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.session_tracker import Seen
from hangdog_server.cluster.stalls import Vigil
from hangdog_server.expiry_warnings import Expiring
from hangdog_server.grpc_api.action_service import Deeds
from hangdog_server.grpc_api.agent_service import Agents
from hangdog_server.grpc_api.campaign_service import Campaigns
from hangdog_server.grpc_api.history_service import Records
from hangdog_server.grpc_api.incident_service import Incidents
from hangdog_server.grpc_api.operations_service import Operations
from hangdog_server.incidents.fair_queue import Turns
from hangdog_server.incidents.incident_run import Means
from hangdog_server.incidents.judge import Judge
from hangdog_server.incidents.offline_ingest import Returns
from hangdog_server.incidents.registry import Desk
from hangdog_server.incidents.session_writer import Living
from hangdog_server.incidents.stall_watch import Sentry
from hangdog_server.listener import LOCAL, Door, Opened
from hangdog_server.notifications.notify_config import Told, told
from hangdog_server.notifications.notify_loop import Notifying
from hangdog_server.notifications.send import check
from hangdog_server.observability.setup import Interceptors, observing
from hangdog_server.protocol.rate_limits import Limits
from hangdog_server.settings import Settings
from hangdog_server.store import trusted_date
from hangdog_server.store.retention import Retention
from hangdog_server.store.store import Store

#: Open files enough for most clusters, of which each agent takes three; fewer are told.
FILES = 12288
#: What is asked of by name whether it serves, beside the whole (grpc.health.v1).
SERVICES = ("", "hangdog.v1.Agents", "hangdog.v1.Campaigns", "hangdog.v1.Incidents")

log = logging.getLogger(__name__)
_DEFAULTS = Settings()


async def serve(
    listen: str,
    where: Path | str,
    judge: Judge,
    announce: Callable[[str], None],
    settings: Settings = _DEFAULTS,
    door: Door = LOCAL,
    metrics: str = "",
    acting: Path | None = None,
    notify: Path | None = None,
    trust_date: bool = False,
) -> None:
    """Serves on `listen` (`HOST:PORT`, port 0: any free one) upon the store `where` (a file, or a URL of PostgreSQL) until told to stop.

    `announce` is given the address once agents can connect; metrics are served at `metrics` unless that is empty;
    `acting` is the file that says what is done to machines, `notify` the one that says who is told of what. Raises
    HangdogError when it cannot listen, or may not, or the store cannot be opened.
    """
    _many_files()
    clock = time.time  # noqa: TID251  # this is the main module that passes the clock down
    fleet = Fleet(settings)
    opened = Opened(listen, door, settings, clock)  # what is refused is refused before anything is made
    does = chosen(acting, clock) if acting is not None else Chosen()
    if does.mode in (Mode.APPROVE, Mode.AUTO):
        opened.close()
    tells = told(notify) if notify is not None else Told()
    await check(tells)
    for path in (door.audit, door.audit and before(door.audit)):
        if path is not None:
            narrow_file(path)
    async with observing(metrics, fleet, opened.certificate_left_s) as observers:
        store = Store(where, settings.store_s, observers.telemetry)
        try:
            if trust_date:
                await trusted_date.trust(store, clock())
            means = Means(fleet, store, judge, clock, telemetry=observers.telemetry)
            async with running(opened, means, settings, observers.interceptors, does, tells) as address:
                stop = _stopped()
                announce(address)
                await stop.wait()
                log.info("stopping")
        finally:
            store.close()


@asynccontextmanager
async def running(
    opened: Opened,
    means: Means,
    settings: Settings,
    interceptors: Interceptors = (),
    does: Chosen | None = None,
    tells: Told | None = None,
) -> AsyncIterator[str]:
    """A server behind the door given, from its first connection to its graceful end."""
    door = opened.door
    audit, limits = Audit(door.audit, means.clock), Limits(settings)
    opened.gate.tries = Tries(means.telemetry, audit)
    with contextlib.suppress(OSError):  # who cannot read it is told so with the first line that is to be written
        log.info("the last line of the record has hash %s", audit.head())
    leading = Leading(means.store, means.fleet, settings, door.advertised)
    desk, vigil, returns = Desk(means, settings, leading), Vigil(), Returns(means, settings, leading)
    seen = Seen(settings.away_s)
    living = Living(means, seen, leading, settings)
    campaigns = CampaignDesk(campaign_run.Means(means.fleet, means.store, settings, means.clock))
    acting = Acting(means, settings, leading, audit, does or Chosen())
    await leading.tick(desk, returns)  # what lies open is under way before anybody can ask for the same
    await campaigns.tick()
    server = grpc.aio.server(options=_options(settings) + opened.options(), interceptors=[opened.gate, *interceptors])
    agents = Agents(
        means.fleet, desk, vigil, returns, leading, settings, means.dictionary, opened.gate, limits, campaigns, seen,
        means.telemetry, Renewals(opened.issuer, audit),
    )  # fmt: skip
    add_AgentsServicer_to_server(agents, server)
    records = Records(means.store, settings, means.clock)
    deeds = Deeds(means, settings, acting, audit)
    operations = Operations(means.store, means.clock, settings.restart_s)
    people = Incidents(means.fleet, desk, means.store, records, deeds, settings, opened.gate, limits, audit, operations)
    add_IncidentsServicer_to_server(people, server)
    add_CampaignsServicer_to_server(Campaigns(campaigns, means.store, settings, opened.gate, limits, audit), server)
    state = health.aio.HealthServicer()  # type: ignore[attr-defined]  # it has no type information of it
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    address = opened.bind(server)
    await server.start()
    opened.start()
    for service in SERVICES:
        await state.set(service, health_pb2.HealthCheckResponse.SERVING)
    notifying = Notifying(means, vigil, settings, tells or Told())
    turns = Turns(settings.max_running)
    sentry = Sentry(vigil, means.fleet, desk, leading, audit, seen, turns, means.telemetry)
    beside = [
        asyncio.create_task(sentry.keep(), name="watch over the jobs"),
        asyncio.create_task(opened.gate.certificates.keep(), name="watch over denied certificates"),
        asyncio.create_task(Expiring(opened, means.fleet, means.clock).keep(), name="certificates that end"),
        asyncio.create_task(leading.keep(desk, returns), name="leases"),
        asyncio.create_task(living.keep(), name="sessions of jobs"),
        asyncio.create_task(campaigns.keep(), name="campaigns"),
        asyncio.create_task(acting.keep(), name="what is done to machines"),
        asyncio.create_task(agents.asking.keep(), name="asking what captures name"),
        *([asyncio.create_task(notifying.keep(), name="telling people")] if tells and tells.receivers else []),
        asyncio.create_task(Retention(means.store, settings, means.clock).keep(), name="retention"),
    ]
    try:
        async with _pages(door, opened, means, vigil, settings, deeds, campaigns, limits, audit):
            yield address
    finally:
        await state.enter_graceful_shutdown()  # first of all: whoever balances over servers sends nobody else here
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await living.close()  # while the agents still show what is there
        means.fleet.end(ServerUnreachable("the server was stopped"))
        await desk.close()
        await campaigns.close()
        await returns.close()
        await acting.close()
        await notifying.close()
        await leading.close()
        opened.stop()
        await server.stop(settings.grace_s)
        opened.end()


@asynccontextmanager
async def _pages(
    door: Door,
    opened: Opened,
    means: Means,
    vigil: Vigil,
    settings: Settings,
    deeds: Deeds,
    campaigns: CampaignDesk,
    limits: Limits,
    audit: Audit,
) -> AsyncIterator[None]:
    """The pages for people, where they are wanted; their packages are loaded only then."""
    if not door.web:
        yield
        return
    from hangdog_server.web.web_server import paged

    async with paged(
        door.web, door.tls, door.insecure, opened.gate, means, vigil, settings, deeds, campaigns, limits, audit
    ):
        yield


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        (
            "grpc.so_reuseport",
            0,
        ),  # gRPC's default lets two servers listen on one port, and each hear half of the agents
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.keepalive_time_ms", int(settings.heartbeat_s * 2000)),  # an agent without power says nothing: ask
        ("grpc.keepalive_timeout_ms", int(settings.heartbeat_s * 1000)),
        # while a ping of the library's own (it measures bandwidth) is under way no other is sent: that one, lost with the
        # line, would otherwise be waited for a minute
        ("grpc.http2.ping_timeout_ms", int(settings.heartbeat_s * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.bdp_probe", 0),  # it answers every look with a ping that measures a bandwidth nobody lacks
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 4000),  # agents and people ask likewise, every 10 s
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_ping_strikes", 0),  # a server short of CPU reads the pings of a minute at once: nobody's fault
    ]


def _many_files() -> None:
    """Every agent is an open file; the usual soft limit of 1,024 is for programs that still use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES:
        log.warning(
            "only %d files may be open: enough for a third as many agents (ulimit -n, LimitNOFILE= of systemd)", soft
        )


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
