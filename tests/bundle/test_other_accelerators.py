"""Bundles with what tools of accelerators print, and what the verdict makes of it: AMD's, Huawei's, the table of nvidia-smi."""

import json
import re
from pathlib import Path

import pytest

from hangdog.offline import open_case, triage
from hangdog_models.reading.hardware import nvidia_smi
from hangdog_models.verdict import Kind
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

TABLE = """\
| NVIDIA-SMI 515.65.01    Driver Version: 515.65.01    CUDA Version: 11.7     |
|-------------------------------+----------------------+----------------------+
|   5  ERR!                On   | 00000000:91:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 81920MiB |    ERR!      Default |
|                               |                      |                 ERR! |
+-------------------------------+----------------------+----------------------+
"""
LOG = "[rank3]:[E1 ProcessGroupNCCL.cpp:1] RuntimeError: CUDA error: device-side assert triggered\n"


QUERY = """\
==============NVSMI LOG==============

Timestamp                                 : Mon Nov 23 10:00:00 2026
Driver Version                            : 570.86.15
Attached GPUs                             : 1
GPU 00000000:91:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    Remapped Rows
        Pending                           : No
        Remapping Failure Occurred        : Yes

"""
LOST = (
    "Unable to determine the device handle for GPU0000:91:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
)


def bundle(folder: Path, name: str, text: str) -> Path:
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    (folder / name).parent.mkdir()
    (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "text", "kind", "code", "probability", "line"),
    [
        ("machine-gpu-b/amd-smi.txt", BAD_PAGES, Kind.MACHINE, "hardware-broken", 0.97, "97%.*Evict gpu-b"),
        ("gpu-b/npu-smi.txt", ALARM, Kind.MACHINE, "device-needs-reset", 0.82, "8-15 on gpu-b .*82%"),
        ("machine-gpu-b/amd-smi.json", ERRORS, Kind.UNDETERMINED, "hardware-suspect", 0.01, ""),
        ("machine-gpu-b/amd-smi.txt", HEAT, Kind.SLOW, "hardware-slows", 0.94, "8-15 on gpu-b .*94%"),
    ],
)
def test_what_a_tool_says_is_the_first_line(
    tmp_path: Path, name: str, text: str, kind: Kind, code: str, probability: float, line: str
) -> None:
    verdict = triage(bundle(tmp_path, name, text))
    assert (verdict.kind, verdict.because[0].code) == (kind, code) and re.match(f"{kind}: .*{line}", headline(verdict))
    assert verdict.suspects[0].machines == ("gpu-b",)
    assert verdict.suspects[0].probability == pytest.approx(probability, abs=0.005)
    assert verdict.evict.machines == (("gpu-b",) if probability > 0.95 else ())


def test_a_gpu_that_answers_nothing_convicts_its_machine(tmp_path: Path) -> None:
    verdict = triage(bundle(tmp_path, "machine-gpu-b/nvidia-smi.txt", TABLE))
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("gpu-b",))


def test_a_log_below_the_table_is_read_and_the_table_in_it_is_not(tmp_path: Path) -> None:
    found = open_case(bundle(tmp_path, "machine-gpu-a/train.log", TABLE + LOG)).snapshot.findings
    assert [one.code for one in found] == ["CUDA device-side assert"]


@pytest.mark.parametrize(
    ("before", "code"), [(QUERY, "row remap failure"), (LOST, "GPU lost")], ids=["query", "complaint"]
)
def test_a_log_below_what_the_tool_said_before_it_is_read_too(tmp_path: Path, before: str, code: str) -> None:
    misleading = (
        "    Remapped Rows : all\n" + "name : value of the job\n" * 5_000 + "step 12: GPU is lost, said a colleague\n"
    )
    found = open_case(bundle(tmp_path, "machine-gpu-a/train.log", before + LOG + misleading)).snapshot.findings
    assert "CUDA device-side assert" in [one.code for one in found]
    assert [(one.code, one.device) for one in found if one.source == nvidia_smi.SOURCE] == [(code, "0000:91:00")]
