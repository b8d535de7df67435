"""The whole proof without a GPU, run once for all tests that look at what it measured."""

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
#: The bound of a dry run on two cores, and what it is given where other work runs beside it. Minutes.
MINUTES = 9.0

#: The parts that run with every change. `make soak` plays the jobs with the other faults, too, and what only a GPU makes
#: worth measuring.
EACH_CHANGE = (
    "machine", "nccl/2 ranks, healthy", "nccl/2 ranks, process stopped", "capture", "profiler", "nvml", "traps",
    "ladder", "ladder-faults",
)  # fmt: skip

#: The parts by name, as the report has them.
Parts = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="session")
def dry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """What `python bench/gpu --dry` measured; its parts have no faults and find none."""
    if find_spec("torch") is None:
        pytest.skip("the trainers need PyTorch: pip install 'hangdog[demo]'")
    out = tmp_path_factory.mktemp("dry")
    command = [
        sys.executable,
        str(ROOT / "bench/gpu"),
        "--dry",
        "--record",
        "--out",
        str(out),
        "--minutes",
        str(MINUTES),
    ]
    if "soak" not in request.config.option.markexpr:
        command += [word for part in EACH_CHANGE for word in ("--only", part)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 * MINUTES + 30)
    parts = {part["part"]: part for part in json.loads((out / "report.json").read_text())["parts"]}
    assert ran.returncode != 3, f"parts are left after {MINUTES} minutes: {ran.stdout[-3000:]}"
    return parts
