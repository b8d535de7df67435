"""What nvidia-smi, amd-smi, rocm-smi, npu-smi and dcgmi printed of real devices: public excerpts, shortened.

tests/reading/SOURCES.md lists them beside those of all readers.
"""

from typing import Any

import pytest

from hangdog_models.findings import Impact
from hangdog_models.reading.hardware import amd_smi, dcgm, npu_smi, nvidia_smi

#: https://github.com/fastfetch-cli/fastfetch/issues/1029, Windows, driver 555.99
LAPTOP = """==============NVSMI LOG==============

Timestamp                                 : Thu Jun 20 07:17:53 2024
Driver Version                            : 555.99
CUDA Version                              : 12.5

Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA GeForce RTX 3070 Ti Laptop GPU
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : N/A
        Pending                           : N/A
    Driver Model
        Current                           : WDDM
    VBIOS Version                         : 94.04.7e.00.03
"""
#: https://github.com/scitix/sichek/pull/121, an H200 with driver 570.86.15 that waits for a reset: the older field is deprecated
RECOVERY = """==============NVSMI LOG==============

Attached GPUs                             : 8
GPU 00000000:19:00.0
    GPU Reset Status
        Reset Required                    : Requested functionality has been deprecated
        Drain and Reset Recommended       : Requested functionality has been deprecated
    GPU Recovery Action                   : {action}
"""
#: https://github.com/mrirecon/bart/issues/323: an idle card, whose link has slowed down
IDLE = """==============NVSMI LOG==============

Attached GPUs                             : 1
GPU 00000000:B1:00.0
    GPU Operation Mode
        Current                           : N/A
    PCI
        Bus                               : 0xB1
        Bus Id                            : 00000000:B1:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
            Link Width
                Max                       : 16x
                Current                   : 16x
        Replays Since Reset               : 0
    Fan Speed                             : 30 %
    Performance State                     : P8
    Clocks Throttle Reasons
        Idle                              : Active
"""


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (LAPTOP, []),
        (RECOVERY.format(action="None"), []),
        (RECOVERY.format(action="Reset"), ["recovery action"]),
        (IDLE, []),
    ],
)
def test_nvidia_smi(text: str, codes: list[str]) -> None:
    assert nvidia_smi.recognises(text)
    assert [one.code for one in nvidia_smi.read(text)] == codes


def diagnosis(*tests: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """DCGM 3.3.1 on a T400, https://github.com/NVIDIA/DCGM/issues/139: most tests do not run there."""
    listed = [{"name": name, "results": [{"gpu_id": "0", **result}]} for name, result in tests]
    return {"DCGM GPU Diagnostic": {"test_categories": [{"...": 1}, {"category": "Hardware", "tests": listed}]}}


def test_dcgmi() -> None:
    skipped = diagnosis(
        ("GPU Memory", {"status": "Skip"}), ("Diagnostic", {"status": "Skip"}), ("EUD Test", {"status": "Skip"})
    )
    assert dcgm.recognises(skipped) and dcgm.read(skipped) == ()
    assert [one.code for one in dcgm.sound(skipped)] == ["no test ran"]


#: https://github.com/ROCm/amdsmi, CHANGELOG.md, as it stands there in a list: indented
THROTTLED = """    GPU: 0
        THROTTLE:
            ACCUMULATION_COUNTER: 11240028
            PROCHOT_VIOLATION_STATUS: {status}
            PPT_VIOLATION_STATUS: NOT ACTIVE
            SOCKET_THERMAL_VIOLATION_STATUS: NOT ACTIVE
            GFX_CLK_BELOW_HOST_LIMIT_VIOLATION_STATUS: N/A
            TOTAL_GFX_CLK_BELOW_HOST_LIMIT_VIOLATION_STATUS:
                XCP_0: [ACTIVE, ACTIVE, ACTIVE, ACTIVE, N/A, N/A, N/A, N/A]
"""
#: the same changelog, `amd-smi metric --ecc --ecc-blocks`
ECC = """GPU: 0
    ECC:
        TOTAL_CORRECTABLE_COUNT: 0
        TOTAL_UNCORRECTABLE_COUNT: {count}
        CACHE_UNCORRECTABLE_COUNT: 0
    ECC_BLOCKS:
        UMC:
            CORRECTABLE_COUNT: 0
            UNCORRECTABLE_COUNT: {count}
            DEFERRED_COUNT: 0
        ...
"""
#: https://github.com/joular/powerjoular/issues/67, a Radeon card at rest
METRIC = """GPU: 0
    USAGE:
        GFX_ACTIVITY: 0 %
        VCN_ACTIVITY: [N/A, N/A, N/A, N/A]
        JPEG_ACTIVITY: [N/A, N/A, N/A, N/A, N/A, N/A, N/A, N/A, N/A, N/A, N/A, N/A, N/A,
            N/A, N/A, N/A]
    POWER:
        SOCKET_POWER: 20 W
        THROTTLE_STATUS: UNTHROTTLED
        POWER_MANAGEMENT: ENABLED
"""
#: https://github.com/ROCm/rocm-systems/pull/2987, an MI350X
STATIC = """GPU: 0
    ASIC:
        MARKET_NAME: AMD Instinct MI350X
        NUM_COMPUTE_UNITS: 128
    BUS:
        BDF: 0000:05:00.0
        MAX_PCIE_SPEED: 32 GT/s
    RAS:
        EEPROM_VERSION: 0x10000
        BAD_PAGE_THRESHOLD: N/A
        BAD_PAGE_THRESHOLD_EXCEEDED: N/A
        POISON_SCHEMA: ENABLED
"""
#: https://github.com/ROCm/legacy-rocm-build/issues/1715
ROCM_SMI = (
    "======================= ROCm System Management Interface =======================\n"
    "GPU[0]\t\t: Serial Number: N/A\n"
    "ERROR: 15 GPU[0]: od volt: Data (usually from reading a file) was not of the type that was expected\t\n"
    "GPU[0]\t\t: Voltage (mV): 775\n"
    "GPU[0]\t\t: PCI Bus: 0000:2F:00.0\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (THROTTLED.format(status="NOT ACTIVE"), []),
        (THROTTLED.format(status="ACTIVE"), [("HW slowdown", Impact.SLOWS)]),
        (ECC.format(count=0), []),
        (ECC.format(count=3), [("memory errors", Impact.SUSPECTS)]),
        (METRIC, []),
        (STATIC, []),
        (ROCM_SMI, []),
    ],
)
def test_amd_smi(text: str, expected: list[tuple[str, Impact]]) -> None:
    assert amd_smi.recognises(text)
    assert [(one.code, one.impact) for one in amd_smi.read(text)] == expected


@pytest.mark.parametrize("count", [0, 3])
def test_amd_smis_json(count: int) -> None:
    # https://github.com/henrygd/beszel/issues/737 (a list, ROCm 6), ROCm/device-metrics-exporter docs (`gpu_data`, ROCm 7)
    usage = {
        "gfx_activity": {"value": 42, "unit": "%"},
        "vcn_activity": [{"value": 0, "unit": "%"}, "N/A", "N/A", "N/A"],
    }
    old = [
        {
            "gpu": 0,
            "usage": usage,
            "ecc": {"total_uncorrectable_count": count, "cache_uncorrectable_count": "N/A"},
            "ecc_blocks": "N/A",
        }
    ]
    blocks = {"UMC": {"correctable_count": 0, "uncorrectable_count": count, "deferred_count": 0}}
    power = {"socket_power": {"value": 41, "unit": "W"}}
    new = {"gpu_data": [{"gpu": 0, "power": power, "ecc": {"total_uncorrectable_count": count}, "ecc_blocks": blocks}]}
    for document in (old, new):
        assert amd_smi.recognises_document(document)
        assert [one.code for one in amd_smi.read_document(document)] == (["memory errors"] if count else [])


#: https://github.com/vllm-project/vllm-ascend/issues/2534: pasted without the line that names the version
TWO_CHIPS = """+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 178.5       36                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3416 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | {health:<13} | -           36                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          3195 / 65536         |
"""
#: https://github.com/vllm-project/vllm-ascend, docs: faqs; one chip a card, npu-smi 26.0
ONE_CHIP = """+------------------------------------------------------------------------------------------------------------------+
| npu-smi 26.0.rc1                            Version: 26.0.rc1                                                    |
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip                      | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
| 0     910B4               | {health:<13} | 82.6                 32                      0    / 0                |
| 0                         | 0000:C1:00.0  | 0                    0    / 0                2871 / 32768            |
"""


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(("text", "place"), [(TWO_CHIPS, "0000:9f:00"), (ONE_CHIP, "0000:c1:00")])
@pytest.mark.parametrize("pasted", [str, indented])
def test_npu_smi(text: str, place: str, pasted: type[str]) -> None:
    for health, expected in (("OK", []), ("Alarm", [("health alarm", place)])):
        shown = pasted(text.format(health=health))
        assert npu_smi.recognises(shown)
        assert [(one.code, one.device) for one in npu_smi.read(shown)] == expected


@pytest.mark.parametrize(("health", "codes"), [("OK", []), ("Warning", ["health warning"])])
def test_npu_smis_answer_to_one_question(health: str, codes: list[str]) -> None:
    """As Huawei's guide to collecting the state of devices shows it: the device stands in the command only."""
    text = f"         Health Status                  : {health}\n         Error Code                     : NA\n         Error Information              : NA\n"
    assert npu_smi.recognises(text)
    assert [one.code for one in npu_smi.read(text)] == codes
