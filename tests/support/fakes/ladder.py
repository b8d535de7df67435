"""What tests of the ladder share: an engine whose torch a fault breaks from outside, and small sizes."""

import os
import threading
from dataclasses import replace
from pathlib import Path

from hangdog_agent.machine_tests.level import Level, LevelOutcome, LevelResult, MachineConviction
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Engine, Probe, cleaned

#: Processes on the CPU stand for devices.
ON_CPU = Probe("of the tests", 0)
#: Enough to see, in a second or two of one core.
SMALL = replace(LevelSettings(), memory_bytes=8 << 20, gemm_size_cpu=192, gemm_repetitions=10, speed_repetitions=40)
_FAULTS = Path(__file__).parents[2] / "agent" / "machine_tests" / "faults"


def engine(fault: str = "", victim: str = "") -> Engine:
    """One whose torch has `fault` in the processes whose command line holds `victim`; see faults/sitecustomize.py."""
    environ = cleaned(os.environ)
    if fault:
        environ |= {"PYTHONPATH": str(_FAULTS), "HANGDOG_TEST_FAULT": fault, "HANGDOG_TEST_VICTIM": victim}
    return Engine(environ=environ)


#: A machine that has ten times as much to do as it can is slow, not broken.
PATIENCE_S = 400


def play(level: Level, deadline_s: float = 300.0) -> tuple[LevelResult, ...]:
    assert level.supported() == ""
    return level.run(deadline_s, threading.Event())


def failed(results: tuple[LevelResult, ...]) -> dict[str, tuple[MachineConviction, ...]]:
    """Whom each failed test convicts."""
    return {one.test: one.convicts for one in results if one.outcome is LevelOutcome.FAIL}
