"""States and errors of NVLinks, as DCGM and nvidia-smi list them."""

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.reading.hardware import nvlink
from support.refused import refused

UP, PART, NONE = "U U U U", "U U D U", "D D D D"


def dcgm(*gpus: str) -> str:
    listed = "".join(f"    gpuId {at}:\n        {states}\n" for at, states in enumerate(gpus))
    return f"+----+\n|  NvLink Link Status  |\n+----+\nGPUs:\n{listed}NvSwitches:\n    physicalId 8:\n        U D U U\n\nKey: Up=U, Down=D\n"


def smi(*gpus: str) -> str:
    """The same as `nvidia-smi nvlink -s` prints it."""
    words = {"U": "26.562 GB/s", "D": "<inactive>"}
    return "".join(
        f"GPU {at}: NVIDIA H100 80GB HBM3 (UUID: GPU-{at})\n"
        + "".join(f"\t Link {link}: {words[state]}\n" for link, state in enumerate(states.split()))
        for at, states in enumerate(gpus)
    )


#: https://github.com/NVIDIA/DCGM/issues/198: a machine whose links are all down
OF_DCGM = """dcgmi nvlink --link-status
+----------------------+
|  NvLink Link Status  |
+----------------------+
GPUs:
    gpuId 0:
        D D D D D D D D D D D D D D D D D D
    gpuId 1:
        D D D D D D D D D D D D D D D D D D
NvSwitches:
    No NvSwitches found.

Key: Up=U, Down=D, Disabled=X, Not Supported=_
"""
#: https://github.com/NVIDIA/dcgm-exporter/issues/576
OF_EXPORTER = """dcgmi nvlink -s
+----------------------+
|  NvLink Link Status  |
+----------------------+
GPUs:
    gpuId 0:
        U U U U U U U U U U U U U U U U U U
    gpuId 1:
        U U U U U U U U U U U U U U U U U U
"""
#: https://github.com/leptonai/gpud/issues/1085: one GPU, put between two that are like those of k8s-test-infra
OF_GPUD = "GPU 2: NVIDIA B200 (UUID: GPU-xxx)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"
#: https://github.com/NVIDIA/k8s-test-infra/issues/371
OF_INFRA = """nvidia-smi nvlink -s
GPU 0: NVIDIA GB200 (UUID: GPU-d1b93026)
         Link 0: 53.125 GB/s
         Link 1: 53.125 GB/s
GPU 1: NVIDIA GB200 (UUID: GPU-39ac7bce)
         Link 0: 53.125 GB/s
         Link 1: 53.125 GB/s
"""
#: https://github.com/NVIDIA/srt-slurm/pull/307
OF_ERRORS = """$ nvidia-smi nvlink -e
GPU 0: NVIDIA GB300
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 0
"""


@pytest.mark.parametrize(
    "text", [OF_DCGM, OF_EXPORTER, OF_INFRA, OF_ERRORS, dcgm(UP, UP, NONE, NONE), dcgm("U U X _", UP), smi(NONE, NONE)]
)
def test_how_a_machine_is_built_is_no_fault(text: str) -> None:
    assert nvlink.recognises(text)
    assert nvlink.read(text) == ()


@pytest.mark.parametrize(
    ("text", "device", "says"),
    [
        (dcgm(UP, UP, PART, UP), "2", "1 of 4 NVLinks are down, those of 3 others are up"),
        (smi(UP, PART), "1", "1 of 4 NVLinks are down, those of 1 other is up"),
        (smi(UP, UP, NONE), "2", "none of its NVLinks is up"),
        (OF_INFRA + OF_GPUD, "2", "none of its NVLinks is up, those of 2 others are up"),
    ],
)
def test_links_that_are_down_beside_whole_gpus_make_suspect(text: str, device: str, says: str) -> None:
    assert nvlink.recognises(text)
    (found,) = nvlink.read(text)
    assert (found.code, found.impact, found.device) == ("NVLink down", Impact.SUSPECTS, device) and says in found.what


@pytest.mark.parametrize(
    "text",
    [
        OF_ERRORS.replace("Recovery Errors: 0", "Recovery Errors: 14"),
        OF_ERRORS.replace("Recovery Errors: 0", "Link recovery failed events: 14"),
        (
            "| NVLINK Error Counts          |                      |\n| GPU 0                        |                      |\n"
            "| Link 0                       |                      |\n|  -> CRC FLIT Error           | 9                    |\n"
            "|  -> Recovery Error           | 14                   |\n"
        ),
    ],
)
def test_links_that_recovered_make_suspect(text: str) -> None:
    assert nvlink.recognises(text)
    (found,) = nvlink.read(text)
    assert (found.code, found.impact, found.device) == ("NVLink recoveries", Impact.SUSPECTS, "0")
    assert "recovered 14 times" in found.what


@pytest.mark.parametrize("name", ["Replay Errors", "CRC Errors"])
def test_what_a_link_repairs_itself_is_no_fault(name: str) -> None:
    assert nvlink.read(OF_ERRORS.replace(f"{name}: 0", f"{name}: 300")) == ()


@pytest.mark.parametrize("text", ["", "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\n", "Link 0: Recovery Errors: 4\n"])
def test_any_other_text_is_none(text: str) -> None:
    assert not nvlink.recognises(text)
    with refused("damaged-gpu-report", UnreadableEvidence):
        nvlink.read(text)
