"""The table that `nvidia-smi` prints when it is asked for nothing: of several drivers, sound, sick and cut off."""

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware import nvidia_smi
from support.refused import refused

#: Recorded on a sound H200 with driver 580.159.04.
SOUND = """\
Thu Nov 26 06:04:13 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |
| N/A   38C    P0            318W /  700W |       0MiB / 143771MiB |      3%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
"""
#: As drivers up to 525 write it; the second GPU is one whose firmware does not answer.
SICK = """\
| NVIDIA-SMI 515.65.01    Driver Version: 515.65.01    CUDA Version: 11.7     |
|-------------------------------+----------------------+----------------------+
|   4  NVIDIA A100-SXM...  On   | 00000000:8C:00.0 Off |                    0 |
| N/A   34C    P0    60W / 400W |      0MiB / 81920MiB |      0%      Default |
|                               |                      |             Disabled |
+-------------------------------+----------------------+----------------------+
|   5  ERR!                On   | 00000000:91:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 81920MiB |    ERR!      Default |
|                               |                      |                 ERR! |
+-------------------------------+----------------------+----------------------+
"""


def said(text: str) -> list[tuple[str, Impact, str]]:
    assert nvidia_smi.recognises(text)
    return [(one.code, one.impact, one.device) for one in nvidia_smi.read(text)]


def test_a_sound_gpu_says_nothing() -> None:
    assert said(SOUND) == []


def test_a_gpu_without_any_answer_is_lost() -> None:
    assert said(SICK) == [("GPU lost", Impact.CONVICTS, "0000:91:00")]


def test_single_values_without_an_answer_are_nothing() -> None:
    assert (
        said(
            SICK.replace("|ERR!  ERR! ERR!    ERR! / ERR!", "| N/A  ERR! P0      51W / 400W").replace(
                "5  ERR!", "5  A100"
            )
        )
        == []
    )


def test_memory_errors_since_the_driver_was_loaded_make_suspect() -> None:
    (finding,) = nvidia_smi.read(SOUND.replace("Off |                    0", "Off |                    2"))
    assert (finding.code, finding.impact) == ("DRAM errors", Impact.SUSPECTS)
    assert isinstance(finding, Finding) and finding.at_s == 1795673053.0


def test_a_gpu_that_is_busy_at_little_power_spins() -> None:
    spinning = SOUND.replace("318W", "127W").replace("  3% ", "100% ")
    assert said(spinning) == [("spinning", Impact.TELLS_NOTHING, "0000:00:06")]


@pytest.mark.parametrize("length", range(0, len(SICK), 97))
def test_an_output_that_was_cut_off_is_no_fault(length: int) -> None:
    cut = SICK[:length]
    if nvidia_smi.recognises(cut):
        assert {code for code, _, device in said(cut) if device != "0000:91:00"} == set()


def test_what_the_table_lacks_is_not_missed_in_it() -> None:
    """It may list a part of the GPUs: `nvidia-smi -i 4` does."""
    assert said(SICK[: SICK.index("|   5")]) == []


def test_more_gpus_than_a_machine_has_are_refused() -> None:
    with refused("too-many", UnreadableEvidence, "256 GPUs"):
        nvidia_smi.read(SOUND + SOUND * 256)
