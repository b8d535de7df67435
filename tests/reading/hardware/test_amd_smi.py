"""What amd-smi and rocm-smi print: nothing of a sound GPU, and of a sick one what nvidia-smi's checks would say.

Forms: `amd-smi metric --throttle` of ROCm 6.4 and `amd-smi static` of an MI350X (ROCm/amdsmi changelog; ROCm/rocm-systems pull
request 2987), `amd-smi metric --json` of ROCm 6 and 7 (ROCm/device-metrics-exporter), `rocm-smi --showrasinfo` of an MI50 and
`--showxgmierr` (ROCm/rocm_smi_lib), the error of a host without the driver (ROCm issue 4926).
"""

import json

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.reading.hardware.amd_smi import read, read_document, recognises, recognises_document
from hangdog_models.reading.limits import Limits
from support.refused import refused

THROTTLE = """GPU: 0
    THROTTLE:
        ACCUMULATION_COUNTER: 11240028
        PROCHOT_ACCUMULATED: 0
        PROCHOT_VIOLATION_STATUS: {prochot}
        PPT_VIOLATION_STATUS: ACTIVE
        SOCKET_THERMAL_VIOLATION_STATUS: {socket}
        VR_THERMAL_VIOLATION_STATUS: NOT ACTIVE
        HBM_THERMAL_VIOLATION_STATUS: {socket}
        PROCHOT_VIOLATION_ACTIVITY: 0 %

GPU: 1
    THROTTLE:
        PROCHOT_VIOLATION_STATUS: NOT ACTIVE
"""
STATIC = """GPU: 0
    BUS:
        BDF: 0000:05:00.0
        MAX_PCIE_WIDTH: 16
    RAS:
        EEPROM_VERSION: 0x10000
        BAD_PAGE_THRESHOLD: 128
        BAD_PAGE_THRESHOLD_EXCEEDED: {exceeded}
        DOUBLE_BIT_SCHEMA: DISABLED
"""
RASINFO = """========================= ROCm System Management Interface =========================
===================================== RAS Info =====================================

GPU[0]:         RAS INFO
         Block       Status    Correctable Error  Uncorrectable Error
           UMC        ENABLED                  7                  {umc}
          SDMA        ENABLED                  0                    0
           GFX        ENABLED                  0                  {gfx}
         ATHUB        ENABLED
     XGMI_WAFL       DISABLED            3145680              3145680
GPU[1]:         RAS INFO
           UMC        ENABLED                  0                    0
"""
LINKS = """XGMI LINK STATUS:
        bdf            link_status
GPU0   0000:0c:00.0   {links}
GPU1   0000:22:00.0   U U U U U U U X
"""
ECC = "gpu,total_correctable_count,total_uncorrectable_count,total_deferred_count\n0,3,0,0\n1,0,{count},0\n"


def metric(total: object, umc: object = 0, gfx: object = 0) -> list[dict[str, object]]:
    blocks = {"UMC": {"uncorrectable_count": umc}, "GFX": {"uncorrectable_count": gfx, "correctable_count": 4}}
    power = {"socket_power": {"value": 41, "unit": "W"}}
    return [{"gpu": 2, "power": power, "ecc": {"total_uncorrectable_count": total}, "ecc_blocks": blocks}]


def told(text: str) -> list[tuple[str, Impact, str]]:
    assert recognises(text)
    return [(one.code, one.impact, one.device) for one in read(text)]


@pytest.mark.parametrize(
    "text",
    [
        THROTTLE.format(prochot="NOT ACTIVE", socket="N/A"),
        STATIC.format(exceeded="N/A"),
        RASINFO.format(umc=0, gfx=0),
        LINKS.format(links="U U U U U U U X"),
        LINKS.format(links="D D D D D D D D"),  # a virtual function says so of links it does not have
        ECC.format(count=0),
    ],
)
def test_a_sound_gpu_is_none_to_speak_of(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (THROTTLE.format(prochot="ACTIVE", socket="NOT ACTIVE"), ("HW slowdown", Impact.SLOWS, "0")),
        (THROTTLE.format(prochot="NOT ACTIVE", socket="ACTIVE"), ("HW thermal slowdown", Impact.SLOWS, "0")),
        (STATIC.format(exceeded="True"), ("bad pages", Impact.CONVICTS, "0")),
        (RASINFO.format(umc=2, gfx=0), ("memory errors", Impact.SUSPECTS, "0")),
        (RASINFO.format(umc=0, gfx=1), ("logic errors", Impact.RESET, "0")),
        (LINKS.format(links="U U D U U U U X"), ("XGMI link down", Impact.SUSPECTS, "0")),
        (ECC.format(count=4), ("memory errors", Impact.SUSPECTS, "1")),
        ("GPU[3]\t\t: XGMI Error count: 2 (Multiple errors detected since last read)\nROCm System Management Interface\n", ("XGMI errors", Impact.SUSPECTS, "3")),
        ("ERROR:root:Driver not initialized (amdgpu not found in modules)\n", ("no driver", Impact.SUSPECTS, "")),
    ],
)  # fmt: skip
def test_a_sick_one_is_told_as_nvidias_would_be(text: str, expected: tuple[str, Impact, str]) -> None:
    assert told(text) == [expected]


@pytest.mark.parametrize("wrapped", [False, True])
def test_json_of_rocm_6_and_of_rocm_7_says_the_same(wrapped: bool) -> None:
    def codes(gpus: list[dict[str, object]]) -> list[tuple[str, Impact]]:
        document = json.loads(json.dumps({"gpu_data": gpus} if wrapped else gpus))
        assert recognises_document(document)
        return [(one.code, one.impact) for one in read_document(document)]

    assert codes(metric(0)) == [] == codes(metric("N/A", "N/A", "N/A"))
    assert codes(metric(5, 5)) == [("memory errors", Impact.SUSPECTS)]
    assert codes(metric(1, 0, 1)) == [("logic errors", Impact.RESET)]
    assert codes([{"gpu": 0, "xgmi_err": "AMDSMI_XGMI_STATUS_NO_ERRORS", "link_status": ["U", "X"]}]) == []
    assert codes([{"gpu": 0, "xgmi_err": "AMDSMI_XGMI_STATUS_MULTIPLE_ERRORS", "link_status": ["U", "D"]}]) == [
        ("XGMI errors", Impact.SUSPECTS),
        ("XGMI link down", Impact.SUSPECTS),
    ]


def test_json_of_rocm_smi_has_an_object_for_each_card() -> None:
    document = {"card0": {"Temperature (Sensor edge) (C)": "38.0"}, "card1": {"XGMI Error count": "1 (Single error)"}}
    assert recognises_document(document)
    assert [(one.code, one.device) for one in read_document(document)] == [("XGMI errors", "1")]


def test_a_cut_output_is_no_fault_and_too_much_is_refused() -> None:
    assert told(THROTTLE.format(prochot="ACTIVE", socket="NO")[:130]) == []
    with refused("too-many", UnreadableEvidence, "256 GPUs"):
        read("".join(f"GPU: {number}\n    A: 1\n" for number in range(300)))
    with refused("too-large", UnreadableEvidence, "file_bytes"):
        read(THROTTLE, Limits(file_bytes=20))


def test_other_documents_are_not_taken_for_one() -> None:
    assert (
        not recognises_document({"gpu": 0}) and not recognises_document([{"rank": 0}]) and not recognises_document([])
    )
