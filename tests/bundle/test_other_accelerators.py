"""Bundles with what the tools of AMD's and Huawei's accelerators print: what the first line of the verdict says of it."""

import json
from pathlib import Path

import pytest

from hangdog.offline import triage
from hangdog_models.views.first_line import headline

JOB = '[job]\nworld_size = 16\n[machines]\n"gpu-a" = "0-7"\n"gpu-b" = "8-15"\n'
BAD_PAGES = "GPU: 3\n    RAS:\n        BAD_PAGE_THRESHOLD_EXCEEDED: True\n"
ALARM = (
    "| npu-smi 24.1.rc2.2               Version: 24.1.rc2.2                                           |\n"
    "| 4     910B2C              | OK            | 97.2        46                0    / 0             |\n"
    "| 5     910B2C              | Alarm         | 97.2        46                0    / 0             |\n"
)
HEAT = "GPU: 0\n    THROTTLE:\n        SOCKET_THERMAL_VIOLATION_STATUS: ACTIVE\n"
ERRORS = json.dumps({"gpu_data": [{"gpu": 0, "ecc": {"total_uncorrectable_count": 3}}]})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("machine-gpu-b/amd-smi.txt", BAD_PAGES, "machine: gpu-b holds the job up (97% sure). Evict gpu-b."),
        ("gpu-b/npu-smi.txt", ALARM, "machine: ranks 8-15 on gpu-b hold the job up, because of their machine (82%)"),
        ("machine-gpu-b/amd-smi.json", ERRORS, "undetermined: the evidence does not decide"),
        ("machine-gpu-b/amd-smi.txt", HEAT, "slow: ranks 8-15 on gpu-b hold the job back (94%)"),
    ],
)  # fmt: skip
def test_what_a_tool_says_is_the_first_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(text, encoding="utf-8")
    verdict = triage(tmp_path)
    assert headline(verdict).startswith(said)
    assert verdict.suspects[0].machines == ("gpu-b",)
