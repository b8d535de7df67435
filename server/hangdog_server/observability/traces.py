"""Makes one OpenTelemetry trace of each incident, with a span for every stage; the extra `otel` brings what this imports."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from enum import StrEnum

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from hangdog_models.incident import IncidentState
from hangdog_models.verdict import Kind
from hangdog_server.telemetry import Delay, IncidentStage, Origin

#: The last spans have so long to reach the collector when the server ends; one that is gone must not hold it. Seconds.
_END_S = 5.0


#: The span of the incident that this task leads, whatever stage of it is on.
_INCIDENT: ContextVar[trace.Span] = ContextVar("incident", default=trace.INVALID_SPAN)


class Traces:
    """A Telemetry that makes spans; what happens outside of an incident makes none."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def count(self, event: StrEnum, by: int = 1) -> None:
        """What comes of an incident stands on its span."""
        span = _INCIDENT.get()
        if isinstance(event, Kind):
            span.set_attribute("hangdog.verdict", event.value)
        elif event is IncidentState.FAILED:
            span.set_status(trace.Status(trace.StatusCode.ERROR, "no verdict"))

    def lasted(self, what: Delay | Origin, seconds: float) -> None:
        if isinstance(what, Origin):
            _INCIDENT.get().set_attribute("hangdog.origin", what.value)

    @contextmanager
    def incident(self, name: str, job: str) -> Iterator[None]:
        attributes = {"hangdog.incident": name, "hangdog.job": job}
        with self._tracer.start_as_current_span("incident", context=Context(), attributes=attributes) as span:
            token = _INCIDENT.set(span)
            try:
                yield
            finally:
                _INCIDENT.reset(token)

    @contextmanager
    def stage(self, stage: IncidentStage) -> Iterator[None]:
        if not _INCIDENT.get().is_recording():
            yield
            return
        with self._tracer.start_as_current_span(stage.value):
            yield

    @contextmanager
    def stored(self, step: str) -> Iterator[None]:
        """Transactions are too many for spans, and the stage `storing` holds those that a verdict waits for."""
        yield


@asynccontextmanager
async def exported(version: str) -> AsyncIterator[Traces]:
    """Traces that go to the collector OpenTelemetry's own variables name, while the block lasts."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # a package of its own

    named = Resource.create({"service.name": "hangdog-server", "service.version": version})
    provider = TracerProvider(resource=named, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield Traces(provider.get_tracer("hangdog", version))
    finally:
        ending = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, _END_S)
