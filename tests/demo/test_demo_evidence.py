"""The bundle a demo keeps is read back as what the agents saw."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hangdog.demo.evidence import write_bundle
from hangdog.demo.shape import MACHINES, machine
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import Limits
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Reason, Thread

STACK = (Frame("main", "train.py", 3), Frame("wait", "threading.py", 320), Frame("do_futex_wait", "", 0, "libc.so.6"))
TRACES = {
    "node-0": (
        ProcessTrace(
            Rank(0), pid=10, threads=(Thread("MainThread", 10, STACK, False, True),), state=ProcessState(10, "S")
        ),
        ProcessTrace(Rank(0), "dataloader-0", 11, (Thread(None, 11, STACK, None, None),)),
    ),
    "node-3": (ProcessTrace(Rank(7), pid=70, missing=Missing(Reason.NOT_PERMITTED, "py-spy: no")),),
}


def look(name: str) -> Mapping[str, Any]:
    ours = {"name": "demo-1-2", "traces": [msgspec.to_builtins(trace) for trace in TRACES.get(name, ())]}
    return {
        "machine": name,
        "jobs": [{"name": "somebody else's", "traces": [msgspec.to_builtins(TRACES["node-0"][0])]}, ours],
    }


def test_what_was_seen_is_what_is_read(tmp_path: Path) -> None:
    write_bundle(tmp_path / "kept", "demo-1-2", look, interval_s=0.1)
    snapshot, layout = open_bundle(tmp_path / "kept", Limits())
    assert snapshot.job.id == "demo-1-2"
    assert dict(layout.sizes) == {"tp": 2, "dp": 2, "pp": 2}
    assert not snapshot.account.unreadable
    assert len(snapshot.rounds) == 2
    for each in snapshot.rounds:
        seen = {(trace.rank, trace.role): trace for trace in each.traces}
        for kept in TRACES["node-0"]:
            assert seen[kept.rank, kept.role].threads == kept.threads
        missing = seen[Rank(7), "trainer"].missing
        assert missing is not None
        assert "py-spy: no" in missing.message
        assert {machine(trace.rank) for trace in each.traces} <= set(MACHINES)
