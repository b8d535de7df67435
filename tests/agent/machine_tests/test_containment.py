"""Every level whose child is stopped, loops, dies, or leaves others behind ends in time, convicts nobody, leaves nothing; settings are back."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog_agent.machine_tests.gpu_settings_backup import GpuSettingsBackup
from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import Level, LevelOutcome, LevelResult, PartKind
from hangdog_agent.machine_tests.level_runner import climb
from hangdog_agent.machine_tests.levels.dcgm import Dcgm
from hangdog_agent.machine_tests.standard_levels import LEVELS, WantedLevels, standard
from support.fakes import ladder, targets
from support.fakes.fake_gpus import FakeGpus, built
from support.fakes.ladder import ON_CPU, SMALL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(ladder.PATIENCE_S)]

#: A level must be over so much after its deadline: what is left is killed, told, and its processes reaped.
LATE_S = 15.0
#: Every program of ours, and the job's own command, as their command lines show.
VICTIM = "-c"
#: What `dcgmi` does in place of each fault.
SHELL = {
    "stopped at once": "kill -STOP $$",
    "loops at once": "while :; do :; done",
    "dies at once": "kill -SEGV $$",
    "leaves others at once": "setsid sleep 600 & exit 226",
}


@pytest.fixture
def levels(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Level]:
    """All levels by name, their children broken."""
    fault = request.param
    program = tmp_path / "dcgmi"
    program.write_text(f"#!/bin/sh\n{SHELL[fault]}\n")
    program.chmod(0o755)
    engine = ladder.engine(fault, VICTIM)
    engine = replace(engine, environ={**engine.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"})
    group = Group(f"127.0.0.1:{free_port()}", 0, 2)
    wish = WantedLevels(2, {}, group, (sys.executable, "-S", "-c", "import site; site.main()"), str(tmp_path))
    return {level.name: level for level in standard(engine, ON_CPU, SMALL, wish, LEVELS)}


def broken(fault: str) -> list[int]:
    """Everybody alive who was started with this fault, in whatever session, whoever adopted them."""
    found = []
    for pid in targets.proc.pids():
        with contextlib.suppress(OSError):
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if f"HANGDOG_TEST_FAULT={fault}".encode() in environ and targets.letter(pid) not in ("Z", ""):
                found.append(pid)
    return found


@pytest.mark.parametrize("levels", list(SHELL), indirect=True)
def test_every_level_ends_in_time_and_leaves_nothing(levels: dict[str, Level], request: pytest.FixtureRequest) -> None:
    fault = request.node.callspec.id
    leaves = fault.startswith("leaves")
    deadline_s = 2.0 if fault in ("stopped at once", "loops at once") else 6.0

    def play(level: Level) -> tuple[float, tuple[LevelResult, ...]]:
        assert level.supported() == "", level.name
        began = time.monotonic()
        results = level.run(deadline_s, threading.Event())
        return time.monotonic() - began, results

    assert len(levels) == len(LEVELS) + 1
    with ThreadPoolExecutor(len(levels)) as pool:
        told = dict(zip(levels, pool.map(play, levels.values()), strict=True))
    assert broken(fault) == []
    for name, (seconds, results) in told.items():
        assert seconds < deadline_s + LATE_S, name
        assert not [one for result in results for one in result.convicts if one.sort is not PartKind.GROUP], (
            name,
            results,
        )
        assert any(one.outcome is not LevelOutcome.PASS for one in results), name
        assert not leaves or any("left behind" in one.message for one in results), (name, results)


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[FakeGpus]:
    library = built(tmp_path)
    if library is None:
        pytest.skip("no C compiler to build the fake NVML with: apt-get install gcc")
    made = FakeGpus(tmp_path / "answers", library)
    made.say("0/clock_memory", "2619")
    made.say("0/clock_graphics", "1980")
    yield made


def test_settings_are_back_when_the_test_that_changed_them_was_killed(gpus: FakeGpus, tmp_path: Path) -> None:
    """As NVIDIA's extended field test once lifted a frequency lock."""
    program = tmp_path / "dcgmi"
    program.write_text('#!/bin/sh\necho 1410 >"$FAKE_NVML/0/clock_graphics"\nkill -STOP $$\n')
    program.chmod(0o755)
    environ = {**gpus.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    diagnosis = climb(
        [Dcgm(replace(SMALL, dcgm_s=3.0), environ)], 60.0, threading.Event(), backup=GpuSettingsBackup(environ)
    )
    assert "in state T" in diagnosis.results[0].message
    (remark,) = diagnosis.remarks
    assert "clocks in MHz of GPU 0" in remark and remark.endswith("; restored")
    assert (gpus.folder / "0/clock_graphics").read_text() == "1980\n"
