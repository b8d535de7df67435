"""The part of the proof about NVML, in a dry run: what it reads stands in the figures, and what accuses a sound device is wrong."""

import re
from pathlib import Path

import pytest

from gpu.families import nvml_here, nvml_raw
from gpu.families.nvml import NvmlProof
from gpu.families.nvml_here import NvmlHere
from support.stands import dry_stand

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

#: As nvidia-smi prints it (CUDA 12.8), of a GPU whose memory has a row that could not be remapped.
WORN = """==============NVSMI LOG==============

Attached GPUs                             : 1
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 1
        Pending                           : No
        Remapping Failure Occurred        : Yes
"""


@pytest.fixture
def proof(tmp_path: Path) -> NvmlProof:
    stand = dry_stand(tmp_path)
    return NvmlProof(stand, nvml_here.here(stand))


def fake(proof: NvmlProof) -> NvmlHere:
    assert proof.nvml.fake is not None
    return proof.nvml


def test_each_call_is_told_with_its_code(proof: NvmlProof) -> None:
    proof.attempt("sweeps", proof.sweeps)
    proof.attempt("calls", proof.calls)
    assert proof.wrong == []
    assert proof.figures["values"][0]["power_mw"] == 600_000
    assert proof.figures["calls refused"]["nvmlDeviceGetPcieReplayCounter[]"] == 3
    assert proof.figures["events offered and registered"]["0x8"] == 0
    assert (proof.stand.out / "nvml-calls.json").stat().st_size > 1000


def test_a_code_of_a_device_in_trouble_is_wrong(proof: NvmlProof) -> None:
    assert proof.nvml.fake is not None
    proof.nvml.fake.say("0/remap", "!999")
    proof.attempt("sweeps", proof.sweeps)
    assert "{'remap': 999}" in proof.wrong[0]


def test_a_check_that_accuses_a_sound_device_is_wrong(proof: NvmlProof) -> None:
    assert proof.nvml.fake is not None
    proof.attempt("idle", proof.idle)
    assert proof.wrong == [] and proof.figures["idle"]["power mW"][0] == 600_000
    proof.nvml.fake.say("1/fabric", "1 0 0")
    proof.attempt("idle", proof.idle)
    assert "NVLink fabric" in proof.wrong[0]


def test_what_a_look_meets_does_not_cost_the_others(proof: NvmlProof) -> None:
    def breaks() -> None:
        raise ValueError("no such thing")

    proof.attempt("this", breaks)
    proof.attempt("kernel log", proof.log)
    assert proof.figures["this"].endswith("ValueError: no such thing") and len(proof.wrong) == 1
    assert re.search(r"\b2 records, 1 .*driver", proof.figures["kernel log"])


def test_raw_texts_are_kept_as_they_are_and_read_again(tmp_path: Path) -> None:
    stand = dry_stand(tmp_path)
    nvml_raw.keep(stand, {"PATH": "/usr/bin:/bin"})
    figures, wrong = nvml_raw.read_again(stand)
    assert wrong == [] and figures["nvidia-smi-q.xml"] == "nothing against it"
    (stand.out / "raw" / "nvml" / "nvidia-smi-q.txt").write_text(WORN, encoding="utf-8")
    _, wrong = nvml_raw.read_again(stand)
    assert "sound device" in wrong[0] and "not be remapped" in wrong[0]


def test_what_other_parts_keep_says_nothing_of_this_machine(tmp_path: Path) -> None:
    """Reports of a job that was hung on purpose convict a machine, and rightly so."""
    stand = dry_stand(tmp_path)
    nvml_raw.keep(stand, {"PATH": "/usr/bin:/bin"})
    (stand.out / "raw" / "4-device-hangs").mkdir()
    (stand.out / "raw" / "4-device-hangs" / "nvidia-smi-q.txt").write_text(WORN, encoding="utf-8")
    assert nvml_raw.read_again(stand)[1] == []
