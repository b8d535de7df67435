"""Traces: one for each incident, its stages within it, kept in memory by OpenTelemetry's own exporter for tests."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Verdict
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.observability.setup import Observers
from hangdog_server.observability.traces import Traces
from support.servers.cast import PATIENT, cluster, stage, trainer


@pytest.fixture
def kept() -> Iterator[tuple[Observers, InMemorySpanExporter]]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield Observers(Fleet(PATIENT), Traces(provider.get_tracer("test"))), exporter
    provider.shutdown()


def at(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None and span.end_time is not None
    return span.start_time, span.end_time


async def test_an_incident_is_one_trace_with_its_stages_in_order(
    tmp_path: Path, kept: tuple[Observers, InMemorySpanExporter]
) -> None:
    observers, exporter = kept
    async with stage(tmp_path / "s.db", observers=observers) as on, cluster(on, a=[0]) as (a,):
        for _ in range(2):
            asking = asyncio.ensure_future(on.snapshot("llama"))
            await a.answer(await a.order(), trainer(0))
            steps = await asking
    spans = exporter.get_finished_spans()
    roots = [span for span in spans if span.parent is None]
    assert [root.name for root in roots] == ["incident"] * 2 and len(spans) == 10
    told = {"hangdog.job": "llama", "hangdog.verdict": "undetermined", "hangdog.origin": "asked"}
    assert dict(roots[1].attributes or {}) == told | {"hangdog.incident": steps[-1].incident}
    for root in roots:
        mine = [span for span in spans if span.parent is not None and span.parent.span_id == root.context.span_id]
        assert [span.name for span in mine] == ["asking", "gathering", "judging", "storing"]
        assert {span.context.trace_id for span in mine} == {root.context.trace_id}
        moments = [moment for span in mine for moment in at(span)]
        assert [at(root)[0], *moments, at(root)[1]] == sorted([at(root)[0], *moments, at(root)[1]])


async def test_an_incident_without_a_verdict_is_an_error(
    tmp_path: Path, kept: tuple[Observers, InMemorySpanExporter]
) -> None:
    def broken(snapshot: Snapshot, topology: Topology) -> Verdict:
        raise ZeroDivisionError

    observers, exporter = kept
    async with stage(tmp_path / "s.db", broken, observers=observers) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.ensure_future(on.snapshot("llama"))
        await a.answer(await a.order(), trainer(0))
        with pytest.raises(Exception, match="ZeroDivisionError"):
            await asking
    (root,) = (span for span in exporter.get_finished_spans() if span.parent is None)
    assert not root.status.is_ok and "hangdog.verdict" not in (root.attributes or {})


#: Tells which packages a server that observes has imported.
PROBE = """
import asyncio, logging, sys
logging.basicConfig(level=logging.WARNING)
for name in sys.argv[1:]:
    sys.modules[name] = None
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.observability.setup import observing
from hangdog_server.settings import ServerSettings
async def main():
    async with observing("", Fleet(ServerSettings())) as observers:
        print(type(observers.telemetry).__name__, any(name.startswith("opentelemetry") and sys.modules[name] for name in sys.modules))
asyncio.run(main())
"""


def probe(*hidden: str, **environ: str) -> tuple[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = (sys.executable, "-c", PROBE, *hidden)
    said = subprocess.run(command, env=clean | environ, capture_output=True, text=True, check=True, timeout=60)
    return said.stdout.strip(), said.stderr


def test_nothing_is_imported_unless_a_collector_is_named() -> None:
    assert probe() == ("Silent False", "")


def test_a_collector_without_the_packages_is_said_and_the_server_runs() -> None:
    said, log = probe("opentelemetry", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert said == "Silent False" and "pip install --require-hashes -r requirements/otel.txt" in log
