"""Runs the server until it is told to stop; the one place that reads the clock and wires the rooms of the server."""

import asyncio
import contextlib
import logging
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from hangdog_models.actions.caps import Mode
from hangdog_models.errors import ServerUnreachable
from hangdog_models.stall_timeouts import StallTimeouts
from hangdog_proto.generated.hangdog_pb2_grpc import (
    add_AgentsServicer_to_server,
    add_CampaignsServicer_to_server,
    add_IncidentsServicer_to_server,
)
from hangdog_proto.private_files import restrict_file
from hangdog_server.actions.backends.actions_config import ActionsConfig, chosen
from hangdog_server.actions.fault_domains import FaultDomains
from hangdog_server.actions.reconcile import ActionLoop
from hangdog_server.auth.audit_log import AuditLog, before
from hangdog_server.auth.refused_requests import Tries
from hangdog_server.campaigns import campaign_run
from hangdog_server.campaigns.campaign_registry import CampaignRegistry
from hangdog_server.cluster.certificate_renewals import Renewals
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.job_states import JobStates
from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.session_tracker import SessionTracker
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.expiry_warnings import ExpiryWarnings
from hangdog_server.grpc_api.action_service import ActionService
from hangdog_server.grpc_api.agent_service import Agents
from hangdog_server.grpc_api.campaign_service import Campaigns
from hangdog_server.grpc_api.history_service import Records
from hangdog_server.grpc_api.incident_service import Incidents
from hangdog_server.grpc_api.lists.list_service import Lists
from hangdog_server.grpc_api.operations_service import Operations
from hangdog_server.grpc_api.response_service import ResponseService
from hangdog_server.incidents.episode.reopening import Reopening
from hangdog_server.incidents.fair_queue import Turns
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.judge import Judge
from hangdog_server.incidents.offline_ingest import OfflineIngest
from hangdog_server.incidents.phase_keeper import PhaseKeeper
from hangdog_server.incidents.registry import IncidentRegistry
from hangdog_server.incidents.round_capture import steady
from hangdog_server.incidents.session_writer import SessionWriter
from hangdog_server.incidents.stall_watch import StallWatcher
from hangdog_server.incidents.triggers.slow_watch import SlowWatcher
from hangdog_server.isolation_tests import IsolationTests
from hangdog_server.listener import LOCAL, ListenerConfig, OpenListeners
from hangdog_server.machine_checks import MachineChecks
from hangdog_server.notifications.notify_config import NotifyConfig, read_config
from hangdog_server.notifications.notify_loop import NotifyLoop
from hangdog_server.notifications.send import check
from hangdog_server.observability.setup import Interceptors, observing
from hangdog_server.protocol.rate_limits import RateLimits
from hangdog_server.settings import ServerSettings
from hangdog_server.store import trusted_date
from hangdog_server.store.retention import Retention
from hangdog_server.store.store import Store

#: Open files enough for most clusters, of which each agent takes three; fewer are told.
FILES = 12288
#: A ping that is not answered for this long ends its line, however short the heartbeat: a busy machine is often late.
LEAST_PING_MS = 1000
#: How long a thread that judges or draws keeps the interpreter from the event loop, on which agents wait. Python's five
#: milliseconds made an agent wait for 100 ms while ten people browsed, one millisecond for 70 to 90 (99th percentile, bench/lists.py). Seconds.
TURN_S = 0.001
#: What is asked of by name whether it serves, beside the whole (grpc.health.v1).
SERVICES = ("", "hangdog.v1.Agents", "hangdog.v1.Campaigns", "hangdog.v1.Incidents")

log = logging.getLogger(__name__)
_DEFAULTS = ServerSettings()


async def serve(
    listen: str,
    where: Path | str,
    judge: Judge,
    announce: Callable[[str], None],
    settings: ServerSettings = _DEFAULTS,
    door: ListenerConfig = LOCAL,
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
    sys.setswitchinterval(TURN_S)
    clock = time.time  # noqa: TID251  # this is the main module that passes the clock down
    fleet = Fleet(settings)
    opened = OpenListeners(listen, door, settings, clock)  # what is refused is refused before anything is made
    does = chosen(acting, clock) if acting is not None else ActionsConfig()
    if does.mode in (Mode.APPROVE, Mode.AUTO):
        opened.close()
    tells = read_config(notify) if notify is not None else NotifyConfig()
    await check(tells)
    for path in (door.audit, door.audit and before(door.audit)):
        if path is not None:
            restrict_file(path)
    async with observing(metrics, fleet, opened.certificate_left_s) as observers:
        store = Store(where, settings.store_s, observers.telemetry)
        try:
            if trust_date:
                await trusted_date.trust(store, clock())
            services = IncidentServices(fleet, store, judge, clock, telemetry=observers.telemetry)
            async with running(opened, services, settings, observers.interceptors, does, tells) as address:
                stop = _stopped()
                announce(address)
                await stop.wait()
                log.info("stopping")
        finally:
            store.close()


@asynccontextmanager
async def running(
    opened: OpenListeners,
    services: IncidentServices,
    settings: ServerSettings,
    interceptors: Interceptors = (),
    does: ActionsConfig | None = None,
    tells: NotifyConfig | None = None,
) -> AsyncIterator[str]:
    """A server behind the door given, from its first connection to its graceful end."""
    door = opened.door
    audit, limits = AuditLog(door.audit, services.clock), RateLimits(settings)
    opened.gate.tries = Tries(services.telemetry, audit)
    with contextlib.suppress(OSError):  # who cannot read it is told so with the first line that is to be written
        log.info("the last line of the audit log has hash %s", audit.head())
    leading = Leading(services.store, services.fleet, settings, door.advertised)
    seen = SessionTracker(settings.away_s)
    registry, monitor, returns = (
        IncidentRegistry(services, settings, leading, seen.seen),
        StallTracker(StallTimeouts(young_s=settings.young_s, young_patience_s=settings.work_patience_s)),
        OfflineIngest(services, settings, leading),
    )
    states = JobStates(services.fleet, monitor, seen, services.store, services.clock, steady)
    living = SessionWriter(services, seen, leading, settings)
    phases = PhaseKeeper(services, monitor, leading, settings)
    campaigns = CampaignRegistry(
        campaign_run.CampaignServices(services.fleet, services.store, settings, services.clock)
    )
    acting = ActionLoop(services, settings, leading, audit, does or ActionsConfig())
    await leading.tick(registry, returns)  # what lies open is under way before anybody can ask for the same
    await campaigns.tick()
    server = grpc.aio.server(options=_options(settings) + opened.options(), interceptors=[opened.gate, *interceptors])
    checks = MachineChecks(services, settings, returns)
    agents = Agents(
        services.fleet, registry, monitor, returns, leading, settings, services.dictionary, opened.gate, limits, campaigns, seen,
        checks, services.telemetry, Renewals(opened.issuer, audit),
    )  # fmt: skip
    add_AgentsServicer_to_server(agents, server)
    lists = Lists(services.fleet, states, services.store, services.clock)
    records = Records(services.store, settings, services.clock)
    actions = ActionService(services, settings, acting, audit)
    operations = Operations(services.store, services.clock, settings.restart_s)
    responding = ResponseService(services, audit)
    people = Incidents(
        services.fleet, registry, services.store, records, actions, settings, opened.gate, limits, audit, operations,
        responding, states, lists,
    )  # fmt: skip
    add_IncidentsServicer_to_server(people, server)
    add_CampaignsServicer_to_server(Campaigns(campaigns, services.store, settings, opened.gate, limits, audit), server)
    state = health.aio.HealthServicer()  # type: ignore[attr-defined]  # it has no type information of it
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    address = opened.bind(server)
    await server.start()
    opened.start()
    for service in SERVICES:
        await state.set(service, health_pb2.HealthCheckResponse.SERVING)
    notifying = NotifyLoop(services, monitor, settings, tells or NotifyConfig())
    turns = Turns(settings.max_running)
    watcher = StallWatcher(
        monitor,
        services.fleet,
        registry,
        leading,
        audit,
        seen,
        turns,
        phases,
        Reopening(services, audit),
        services.telemetry,
    )
    beside = [
        asyncio.create_task(watcher.keep(), name="watch over the jobs"),
        asyncio.create_task(
            SlowWatcher(services, monitor, registry, leading, audit, turns, settings).keep(), name="pace of the jobs"
        ),
        asyncio.create_task(opened.gate.certificates.keep(), name="watch over denied certificates"),
        asyncio.create_task(
            ExpiryWarnings(opened, services.fleet, services.clock).keep(), name="certificates that end"
        ),
        asyncio.create_task(leading.keep(registry, returns), name="leases"),
        asyncio.create_task(living.keep(), name="sessions of jobs"),
        asyncio.create_task(checks.keep(), name="what checks of machines found"),
        asyncio.create_task(phases.keep(), name="phases of jobs"),
        asyncio.create_task(campaigns.keep(), name="campaigns"),
        asyncio.create_task(acting.keep(), name="what is done to machines"),
        asyncio.create_task(
            IsolationTests(services, acting, campaigns, leading, audit).keep(), name="tests of machines that are out"
        ),
        asyncio.create_task(
            FaultDomains(services.fleet, acting.chosen.actors).keep(), name="what machines share with others"
        ),
        asyncio.create_task(agents.asking.keep(), name="asking what captures name"),
        *([asyncio.create_task(notifying.keep(), name="telling people")] if tells and tells.receivers else []),
        asyncio.create_task(Retention(services.store, settings, services.clock).keep(), name="retention"),
    ]
    try:
        async with _pages(
            door, opened, services, states, settings, actions, campaigns, limits, audit, responding, lists
        ):
            yield address
    finally:
        await state.enter_graceful_shutdown()  # first of all: whoever balances over servers sends nobody else here
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await living.close()  # while the agents still show what is there
        await phases.close()
        services.fleet.end(ServerUnreachable("the server was stopped", code="server-stopped"))
        await registry.close()
        await campaigns.close()
        await returns.close()
        await acting.close()
        lists.close()
        await notifying.close()
        await leading.close()
        opened.stop()
        await server.stop(settings.grace_s)
        opened.end()


@asynccontextmanager
async def _pages(
    door: ListenerConfig,
    opened: OpenListeners,
    services: IncidentServices,
    states: JobStates,
    settings: ServerSettings,
    actions: ActionService,
    campaigns: CampaignRegistry,
    limits: RateLimits,
    audit: AuditLog,
    responding: ResponseService,
    lists: Lists,
) -> AsyncIterator[None]:
    """The pages for people, where they are wanted; their packages are loaded only then."""
    if not door.web:
        yield
        return
    from hangdog_server.web.web_server import paged

    async with paged(
        door.web,
        door.tls,
        door.insecure,
        opened.gate,
        services,
        states,
        settings,
        actions,
        campaigns,
        limits,
        audit,
        responding,
        lists,
    ):
        yield


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    answer_ms = max(LEAST_PING_MS, int(settings.heartbeat_s * 1000))
    return [
        (
            "grpc.so_reuseport",
            0,
        ),  # gRPC's default lets two servers listen on one port, and each hear half of the agents
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.keepalive_time_ms", int(settings.heartbeat_s * 2000)),  # an agent without power says nothing: ask
        ("grpc.keepalive_timeout_ms", answer_ms),
        # while a ping of the library's own (it measures bandwidth) is under way no other is sent: that one, lost with the
        # line, would otherwise be waited for a minute
        ("grpc.http2.ping_timeout_ms", answer_ms),
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
            "the limit of %d open files is enough for a third as many agents (ulimit -n, LimitNOFILE= of systemd)", soft
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
