"""Puts together who watches this server: Prometheus where an address is given, OpenTelemetry where its variables say so.

The packages are imported here, where they are asked for, and nowhere else.
"""

import asyncio
import importlib.metadata
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from hangdog_server.cluster.fleet import Fleet
from hangdog_server.telemetry import SILENT, Delay, Several, Telemetry

#: OpenTelemetry's variables that name a collector of traces.
COLLECTORS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
#: Between two looks at how late the event loop is. Seconds.
_LOOP_S = 0.5

log = logging.getLogger(__name__)
Interceptors = Sequence["grpc.aio.ServerInterceptor[Any, Any]"]


@dataclass(slots=True)
class Observers:
    """Who hears of what happens to this fleet, and what has to stand between gRPC and us for that."""

    fleet: Fleet
    telemetry: Telemetry = SILENT
    interceptors: Interceptors = ()
    #: Where metrics are served, `HOST:PORT`; empty when nowhere.
    metrics: str = ""


@asynccontextmanager
async def observing(
    metrics: str, fleet: Fleet, certificate_left_s: Callable[[], float | None] = lambda: None
) -> AsyncIterator[Observers]:
    """Watches while the block lasts; serves metrics at `metrics` (`HOST:PORT`) unless it is empty. Raises WrongUse.

    `certificate_left_s` says how long the server's own certificate lasts, None without one.
    """
    received: list[Telemetry] = []
    interceptors: list[grpc.aio.ServerInterceptor[Any, Any]] = []
    async with AsyncExitStack() as stack:
        if metrics:
            from prometheus_client import CollectorRegistry

            from hangdog_server.observability.grpc_counters import Counting
            from hangdog_server.observability.metrics import Metrics
            from hangdog_server.observability.scrape import scraped

            registry = CollectorRegistry()
            counts = Metrics(registry, importlib.metadata.version("hangdog"))
            counts.watch(fleet, asyncio.get_running_loop().time, certificate_left_s)
            received.append(counts)
            interceptors.append(Counting(registry))
            metrics = await stack.enter_async_context(scraped(metrics, counts.text))
            log.info("metrics at http://%s/metrics", metrics)
            await stack.enter_async_context(_lag(counts))
        if any(os.environ.get(name) for name in COLLECTORS):
            traces = await _traces(stack)
            received += [traces] if traces is not None else []
        telemetry = received[0] if len(received) == 1 else Several(received) if received else SILENT
        yield Observers(fleet, telemetry, interceptors, metrics)


async def _traces(stack: AsyncExitStack) -> Telemetry | None:
    """Traces where their packages are; where not, that is said, and the server runs without."""
    try:
        from hangdog_server.observability.traces import exported

        return await stack.enter_async_context(exported(importlib.metadata.version("hangdog")))
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        install = "pip install --require-hashes -r requirements/otel.txt"
        log.warning("traces are not sent, %s is not installed: in hangdog's source tree: %s", error.name, install)
        return None


@asynccontextmanager
async def _lag(telemetry: Telemetry) -> AsyncIterator[None]:
    task = asyncio.create_task(_watch_loop(telemetry), name="event loop's lag")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch_loop(telemetry: Telemetry) -> None:
    """How much later than asked for the event loop wakes: so long a heartbeat waits to be heard."""
    clock: Callable[[], float] = asyncio.get_running_loop().time
    while True:
        due = clock() + _LOOP_S
        await asyncio.sleep(_LOOP_S)
        telemetry.lasted(Delay.LOOP, max(0.0, clock() - due))
