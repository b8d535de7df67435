"""Each source of evidence has a switch: turned off, it is not asked, and the reason says so."""

import time
from dataclasses import replace
from pathlib import Path

from hangdog_agent.capture import library_counters
from hangdog_agent.capture.flight_recorder.recorder import record
from hangdog_agent.capture.process_capture import Tools, look
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import ProcessRole, RankProcesses
from hangdog_agent.stalls.progress.collective_counts import Collectives
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.ranks import Rank
from hangdog_models.stack import Reason
from support.fakes import targets
from support.fakes.dumper import SERVING, own_job, pickled, played, recorded, serving
from support.fakes.played_ras import served
from support.fakes.recorder_asked import SHORT, TOOLS, trainer


def without(**off: int) -> Tools:
    return replace(TOOLS, settings=replace(CaptureSettings(), **off))


def test_no_stacks_are_taken(tools: Tools) -> None:
    off = replace(tools, settings=replace(tools.settings, stacks=0))
    with targets.running(targets.WAIT) as process:
        seen = look(targets.row(process), off, time.monotonic() + 5.0)
    assert not seen.threads and seen.missing is not None and "stacks=0" in seen.missing.message


def test_a_pipe_is_not_written_to_nor_a_socket_asked(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6)) as process:
        told = record(trainer(process), without(recorder_pipe=0), SHORT)
        assert told.missing is not None and told.missing.reason is Reason.NO_EVIDENCE
    assert not (tmp_path / "dump-0").exists()
    said = own_job() | {"RANK": "0"} | serving(tmp_path / "s", fr_trace_json=recorded(7, 6))
    with targets.running(SERVING + targets.WAIT, environ=said) as process:
        member = trainer(process)
        assert record(member, TOOLS, SHORT).missing is None
        told = record(member, without(recorder_socket=0), SHORT)
        assert told.missing is not None and not told.data


def test_ras_is_asked_neither_for_a_capture_nor_now_and_then() -> None:
    with served() as (port, asked), targets.running(targets.WAIT) as process:
        row = replace(targets.row(process), environ={"NCCL_RAS_ADDR": f"localhost:{port}"})
        member = RankProcesses("job", Rank(0), ProcessRole.TRAINER, row)
        off = without(ras=0)
        library_counters.hear([member], off)
        collectives = Collectives(off, StallSettings(ras_every_s=0.01))
        for _ in range(3):
            assert collectives.read({"job": [member]}, time.monotonic()) == {}
            time.sleep(0.05)
        assert asked == []
        library_counters.hear([member], TOOLS)
        assert asked, "would have been asked"
