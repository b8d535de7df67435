"""Traps in a dry run: whoever tells of one is heard, and an accusation of the machine is wrong."""

import re
import sys
from pathlib import Path

import pytest

from gpu.families import nvml_here, traps
from gpu.families.trap_process import TrapProcess
from support.stands import dry_stand

SAYS = "import json, sys; print(json.dumps({'ready': 1}), flush=True); sys.stdin.readline(); sys.exit('RuntimeError: it broke')"

BREAKS = "import json, time; print(json.dumps({'broke': time.monotonic()}), flush=True); exit(1)"


def test_a_process_says_when_it_is_ready_goes_on_when_told_and_is_heard_to_the_end(tmp_path: Path) -> None:
    with TrapProcess((sys.executable, "-c", SAYS), {}, tmp_path / "one") as process:
        assert process.wait_for("ready", 20.0) and not process.wait_for("more", 0.1)
        process.go()
        assert process.wait(20.0) == 1
        assert process.last() == ["RuntimeError: it broke"]


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with TrapProcess(("/bin/sleep", "600"), {}, tmp_path / "one") as process:
        assert process.wait(0.1) is None
        assert not Path(f"/proc/{process.pid}").exists()


def test_an_event_that_convicts_the_machine_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traps, "_STAND_INS", {"trap": (79, "GPU has fallen off the bus.")})
    stand = dry_stand(tmp_path)
    nvml = nvml_here.here(stand)
    with (
        traps._listening(stand, nvml) as listeners,
        TrapProcess((sys.executable, "-c", BREAKS), {}, tmp_path / "one") as trainer,
    ):
        assert listeners.wait_for_all() == "listened for"
        figures, wrong = traps._struck("trap", trainer, listeners)
    assert any(re.search(r"accuses the machine .*: Xid 79 is ", words) for words in wrong), figures
