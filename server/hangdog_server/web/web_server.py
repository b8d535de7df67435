"""Serves the site on a port of its own, on the server's own event loop."""

import asyncio
import contextlib
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from hangdog_models.errors import WrongUse
from hangdog_proto.client import certificate_folder
from hangdog_proto.client.server_address import is_loopback
from hangdog_server.auth.audit_log import AuditLog
from hangdog_server.auth.authorizer import Authorizer
from hangdog_server.campaigns.campaign_registry import CampaignRegistry
from hangdog_server.cluster.job_states import JobStates
from hangdog_server.grpc_api.action_service import ActionService
from hangdog_server.grpc_api.lists.list_service import Lists
from hangdog_server.grpc_api.response_service import ResponseService
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.ports.acceptor import accepting, affordable
from hangdog_server.ports.admission import Admission, AdmissionLimits
from hangdog_server.ports.listeners import listeners
from hangdog_server.protocol.rate_limits import RateLimits
from hangdog_server.settings import ServerSettings
from hangdog_server.web.action_pages import ActionPages
from hangdog_server.web.campaign_pages import CampaignPages
from hangdog_server.web.credentials import HttpCredentials
from hangdog_server.web.history import History
from hangdog_server.web.http_protocol import Speaking
from hangdog_server.web.jobs.communicator_pages import CommunicatorPages
from hangdog_server.web.lists.drawing import Drawing
from hangdog_server.web.lists.list_pages import ListPages
from hangdog_server.web.live_feed import MOST, Feed
from hangdog_server.web.marks import Marks
from hangdog_server.web.overview import Observatory
from hangdog_server.web.request_guard import Guard
from hangdog_server.web.responding.response_pages import ResponsePages
from hangdog_server.web.site import Site

#: Connections at once on which something was asked: every open page has one, and then there are requests.
CONNECTIONS = MOST + 100
#: Of them, those of one address: a proxy before this server brings nearly everybody.
EACH = MOST + 50
#: Connections on which nothing was asked yet, in total and of one address; and those whose handshake or request is read.
#: Over TLS each of the last takes some 60 KiB.
WAITING, WAITING_EACH, SLOTS = 512, 384, 64
#: Bytes that asyncio sets aside for reading a TLS connection: one record. Its own 256 KiB are of use to nobody who sends forms.
READ = 16 << 10
#: A connection has so long from its beginning to the end of its first request's head, and a later request for its head. Seconds.
HEAD_S = 10.0
#: Between two looks at whether the certificate was renewed. Seconds.
RENEWED_S = 10.0
#: Requests that run get this long when the server ends. Seconds.
GRACE_S = 2

log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """Leaves signals to the process it runs in, which ends it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        raise AssertionError("nobody sends it signals")


@asynccontextmanager
async def paged(
    listen: str,
    tls: Path | None,
    insecure: bool,
    gate: Authorizer,
    services: IncidentServices,
    states: JobStates,
    settings: ServerSettings,
    actions: ActionService,
    campaigns: CampaignRegistry,
    limits: RateLimits,
    audit: AuditLog,
    responding: ResponseService,
    lists: Lists,
) -> AsyncIterator[str]:
    """The pages of a server at `listen` while the block lasts; gives their address. Raises WrongUse."""
    open_ = insecure or is_loopback(listen)
    asker = HttpCredentials(gate, open_, insecure, secure=tls is not None)
    observatory = Observatory(services.fleet, states, services.store, settings)
    guard = Guard(asker)
    history = History(services.store, actions, settings, services.clock)
    acts = ActionPages(guard, actions, history, gate)
    testing = CampaignPages(guard, campaigns, history, limits, audit)
    responses = ResponsePages(guard, responding, services.store)
    marks, drawing = Marks(observatory, services.store, history, lists), Drawing()
    listed = ListPages(
        lists, marks, guard, history, actions, services.store, settings, drawing, services.clock
    )  # fmt: skip
    communicators = CommunicatorPages(observatory, guard, drawing, services.clock)
    site = Site(
        observatory, services.store, asker, guard, history, acts, testing, responses, marks, listed, communicators, drawing,
        services.clock,
    )  # fmt: skip
    try:
        async with served(site.app(), site.feed, listen, tls) as address:
            log.info("pages at %s", address)
            yield address
    finally:
        await testing.close()
        drawing.close()


@asynccontextmanager
async def served(app: Starlette, feed: Feed, listen: str, tls: Path | None) -> AsyncIterator[str]:
    """Serves at `listen` (`HOST:PORT`, port 0: any free one) while the block lasts; gives the address. Raises WrongUse."""
    host, _, port = listen.rpartition(":")
    sockets = _bound(host.strip("[]"), int(port), listen)
    config = uvicorn.Config(
        app, log_config=None, log_level="warning", access_log=False, lifespan="off", ws="none", server_header=False,
        proxy_headers=False, limit_concurrency=CONNECTIONS + SLOTS + 1, timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=16 << 10, http="h11",
    )  # fmt: skip
    config.load()
    if tls is not None:
        config.ssl = _context(tls)
        sslproto.SSLProtocol.max_size = READ
    server = _Server(config)
    port = sockets[0].getsockname()[1]
    task = asyncio.create_task(server.serve([]), name="pages")  # the sockets are ours: uvicorn bounds no connections
    renewing = asyncio.create_task(_renew(tls, config.ssl), name="certificate of the pages")
    admission = Admission(
        AdmissionLimits(CONNECTIONS, EACH, affordable(WAITING), affordable(WAITING_EACH), SLOTS, HEAD_S)
    )
    async with accepting(sockets, admission, Speaking(config, server, admission, HEAD_S).answer) as acceptor:
        try:
            while not server.started and not task.done():
                await asyncio.sleep(0.005)
            if task.done():
                await task
            yield f"{'https' if tls else 'http'}://{host}:{port}"
        finally:
            acceptor.stop()
            renewing.cancel()
            feed.close()
            server.should_exit = True
            await asyncio.gather(task, renewing, return_exceptions=True)
            # who takes nothing and closes nothing is cut off at the end of this block


def _bound(host: str, port: int, listen: str) -> list[socket.socket]:
    try:
        return listeners(host, port)
    except socket.gaierror as error:
        raise WrongUse(
            f"cannot serve pages on {listen}: {error.strerror}", "write --web HOST:PORT", code="cannot-listen"
        ) from error
    except (OSError, OverflowError) as error:
        raise WrongUse(
            f"cannot serve pages on {listen}", "is the port taken? choose another --web", code="cannot-listen"
        ) from error


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _, certificate, key = certificate_folder.paths(folder)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise WrongUse(
            f"the certificate in {folder} cannot be used for pages: {error}",
            "hangdog certs show DIR",
            code="unusable-certificate",
        ) from error
    return context


async def _renew(folder: Path | None, context: ssl.SSLContext | None) -> None:
    """Takes a renewed certificate up; connections that are there keep the one they began with."""
    if folder is None or context is None:
        return
    _, certificate, key = certificate_folder.paths(folder)
    before = None
    while True:
        with contextlib.suppress(OSError):
            stamp = (certificate.stat().st_mtime_ns, key.stat().st_mtime_ns)
            if before is not None and stamp != before:
                try:
                    context.load_cert_chain(certificate, key)
                    log.info("pages show the renewed certificate")
                except ssl.SSLError as error:
                    log.error("the renewed certificate is not used for pages: %s", error)
            before = stamp
        await asyncio.sleep(RENEWED_S)
