"""A crash that is taken along as a bundle is judged there as it was on the server."""

import signal
from pathlib import Path

import pytest

import hangdog
from hangdog.evidence.write_bundle import files
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.exits import Exit
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import Missing, ProcessTrace, Reason
from hangdog_models.topology import Layout, build
from hangdog_server.incidents.replay import Replayed

LAYOUT = Layout(world_size=4, machines={"a": (Rank(0), Rank(1)), "b": (Rank(2), Rank(3))})
LOST = tuple(Finding("log", "connection lost", Impact.VICTIM, "it went away", "a", Rank(rank)) for rank in (0, 1))
ECC = Finding("log", "CUDA uncorrectable ECC", Impact.CONVICTS, "a memory error", "b", Rank(3))


@pytest.mark.parametrize("status", [1, 3, -signal.SIGSEGV, -signal.SIGKILL])
@pytest.mark.parametrize("found", [LOST, (*LOST, ECC)])
def test_the_verdict_is_the_same(tmp_path: Path, status: int, found: tuple[Finding, ...]) -> None:
    exits = (Exit(Rank(0), 1, 10.3), Exit(Rank(1), 1, 10.4), Exit(Rank(2), -15, 11.0), Exit(Rank(3), status, 10.0))
    traces = tuple(ProcessTrace(Rank(rank), missing=Missing(Reason.NO_EVIDENCE, "it ended")) for rank in range(4))
    snapshot = Snapshot(Job("llama"), (Round(0, traces),), findings=found, exits=exits)
    live = diagnose(snapshot, build(LAYOUT, Rank(3))[0])
    for name, content in files(Replayed(snapshot, LAYOUT, ())):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    again = hangdog.triage(tmp_path)
    assert live.culprit is not None and again.culprit is not None
    assert (again.kind, again.evict.machines, again.culprit.ranks) == (
        live.kind,
        live.evict.machines,
        live.culprit.ranks,
    )
    assert again.culprit.ranks == (3,) and again.culprit.machines == ("b",)
