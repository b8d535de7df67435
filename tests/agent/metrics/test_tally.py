"""What the agent counts, in the file that node_exporter reads: whole at any moment, true, and gone when the agent is."""

import logging
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.metrics.metrics import AgentEvent, AgentMetrics, AgentStatus
from hangdog_agent.metrics.textfile import Textfile
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.stack import Missing, ProcessTrace, Reason
from support.fakes import targets
from support.fakes.targets import WAIT, running
from support.refused import refused
from support.servers.far_end import ENVIRON, Server, linked, reached

Values = dict[str, float]


def values(text: str) -> Values:
    """Every series without `hangdog_agent_`, as node_exporter's own parser reads it, its label's value behind a colon."""
    found: Values = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("counter", "gauge"), family
        for sample in family.samples:
            (*_, label) = ("", *sample.labels.values())
            found[sample.name.removeprefix("hangdog_agent_") + (f":{label}" if label else "")] = sample.value
    return found


def test_a_look_is_counted_by_what_became_of_each_process() -> None:
    tally, late = AgentMetrics("1.2"), Missing(Reason.TIMED_OUT, "5 s")
    before = values(tally.text(AgentStatus()))
    tally.looked(
        [ProcessTrace(Rank(0), pid=1), ProcessTrace(Rank(1), missing=late), ProcessTrace(Rank(2), missing=late)]
    )
    tally.count(AgentEvent.DROPPED)
    lost = Finding("NVML", "GPU lost", Impact.CONVICTS, "GPU 3 is lost", "gpu-a17", at_s=5.0)
    after = values(tally.text(AgentStatus(True, 1, 3, (lost,), 7)))
    assert after.keys() == before.keys(), "every series is there from the start"
    changed = {name: value - before[name] for name, value in after.items() if value != before[name]}
    own = {"cpu_seconds_total", "resident_memory_bytes", "open_fds", "tools_cpu_seconds_total"}
    assert {name: value for name, value in changed.items() if name not in own} == {
        "looks_total": 1, "processes_total:captured": 1, "processes_total:timed_out": 2, "orders_dropped_total": 1,
        "connected": 1, "jobs": 1, "trainers": 3, "findings:convicts": 1, "spooled_looks": 7,
    }  # fmt: skip
    assert after["info:1.2"] == 1 and after["cpu_seconds_total"] > 0 and after["open_fds"] >= 3
    assert 10e6 < after["resident_memory_bytes"] < 2e9


async def test_the_line_and_what_it_answered(tools: Tools) -> None:
    tally, tools = AgentMetrics(), replace(tools, stop=threading.Event())
    async with Server() as server, linked(server, tools, tally=tally) as kept:
        with running(WAIT, environ=ENVIRON):
            far = await server.line()
            while not (await far.hear("presence")).jobs:
                pass
            far.order("a", rounds=2)
            for _ in range(2):
                await far.hear("captured")
            now = values(tally.text(kept.link.status()))
            told = {name: now[name] for name in ("connected", "jobs", "trainers", "orders_total", "looks_total")}
            assert told == {"connected": 1, "jobs": 1, "trainers": 1, "orders_total": 1, "looks_total": 2}
            assert now["processes_total:captured"] == 2 and now["connections_total"] == 1
        await server.stop()
        await reached(lambda: values(tally.text(kept.link.status()))["connection_failures_total"] > 1)
        assert values(tally.text(kept.link.status()))["connected"] == 0


def test_the_file_is_whole_readable_by_all_and_gone_at_the_end(tmp_path: Path) -> None:
    path, number = tmp_path / "hangdog.prom", iter(range(1_000_000))

    def text() -> str:
        return f"hangdog_agent_x {next(number)}\n" * 1000

    with Textfile(path, 0.001, text):
        targets.until(path.exists)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        for _ in range(200):
            lines = path.read_text().splitlines()
            assert len(lines) == 1000 and len(set(lines)) == 1
        assert next(number) > 2, "it was written again"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "hurt", [lambda path: path.parent.rmdir(), lambda path: path.mkdir()], ids=["no folder", "taken"]
)
def test_a_file_that_cannot_be_written_is_said_once(
    tmp_path: Path, hurt: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path, asked = tmp_path / "folder" / "hangdog.prom", threading.Semaphore(0)
    path.parent.mkdir()
    hurt(path)

    def text() -> str:
        asked.release()
        return "x 1\n"

    with caplog.at_level(logging.WARNING), Textfile(path, 0.001, text):
        for _ in range(5):
            assert asked.acquire(timeout=10)
    assert len(caplog.messages) == 1 and f"not written to {path}" in caplog.messages[0]
    assert not any(each.is_file() for each in tmp_path.rglob("*"))


def test_a_name_that_node_exporter_does_not_read_is_refused(tmp_path: Path) -> None:
    with refused("wrong-setting"):
        Textfile(tmp_path / "metrics.txt", 1.0, str)
