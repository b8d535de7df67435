"""What NVML's answers say of a GPU or its driver. The thresholds are those for nvidia-smi, which asks the same library."""

from collections.abc import Iterator, Mapping
from typing import Any

from hangdog_models.findings import Impact
from hangdog_models.reading.hardware.nvidia_smi_checks import CHECKS
from hangdog_models.reading.hardware.nvidia_smi_query import Gpu, Path
from hangdog_models.rules import policy

#: Code, bearing, sentence; the sentence follows the GPU's name.
Complaint = tuple[str, Impact, str]

#: Return codes of NVML that tell something of the GPU itself.
NO_PERMISSION, LOST, RESET_REQUIRED, NOT_FOUND, UNKNOWN = 4, 15, 16, 28, 999
#: Those that mean that a question does not apply: not supported, no such symbol, an older layout.
DOES_NOT_APPLY = frozenset({3, 13, 25})
#: Return codes of the start of NVML.
NO_DRIVER, NO_LIBRARY, MISMATCH = 9, 12, 18
#: Share of questions without an answer from which a GPU does not answer at all, as for nvidia-smi.
_SILENT = 0.5
#: An event's type is one bit. Xid has its number in the data; the others are named here, with what we make of them.
_XID = 0x8
_EVENTS = {
    0x800: ("memory retirement failure", Impact.SUSPECTS, "a faulty part of its memory could not be retired"),
    0x1000: ("poison", Impact.SUSPECTS, "a corrupt value was read and its process ended"),
    0x2000: ("fatal poison", Impact.RESET, "a corrupt value was read and could not be contained: reset it"),
    0x4000: ("GPU lost", Impact.CONVICTS, "the driver says that it is unavailable"),
}
#: Bits of the reasons for a lower clock that only hardware sets, as nvidia-smi names them.
_BRAKES = {0x8: "hw_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown"}
_FABRIC = {1: "not started", 2: "in progress", 3: "completed"}
_YES = {0: "No", 1: "Yes"}


def unstartable(code: int) -> Complaint:
    """What it says of the machine that NVML cannot be started, where it could be before."""
    if code == NO_DRIVER:
        return "no driver", Impact.CONVICTS, "the GPU driver is not loaded any more (NVML code 9)"
    if code in (LOST, NOT_FOUND):
        return "GPU lost", Impact.CONVICTS, f"the driver finds no GPU any more (NVML code {code})"
    if code == MISMATCH:
        return "driver mismatch", Impact.SUSPECTS, "the driver does not fit its libraries: an update without a reload"
    return "no driver", Impact.SUSPECTS, f"the GPU driver cannot be asked any more (NVML code {code})"


def lost(handle: int, values: Mapping[str, Any], errors: Mapping[str, int]) -> Complaint | None:
    """Whether a GPU is gone, by the codes of its handle and of each question; one unknown error alone is nothing."""
    codes = {handle, *errors.values()}
    for code in (LOST, NOT_FOUND):
        if code in codes:
            return "GPU lost", Impact.CONVICTS, f"the driver has lost it (NVML code {code})"
    if RESET_REQUIRED in codes:
        return "reset required", Impact.RESET, "the driver wants a reset of it (NVML code 16)"
    mute = sum(code == UNKNOWN for code in errors.values())
    asked = len(values) + sum(code not in DOES_NOT_APPLY for code in errors.values())
    if handle == UNKNOWN or (mute > 1 and mute >= _SILENT * asked):
        return "GPU lost", Impact.CONVICTS, f"{mute or 'all'} questions have no answer (NVML code 999)"
    if handle and handle not in (NO_PERMISSION, *DOES_NOT_APPLY):
        return "GPU not reachable", Impact.SUSPECTS, f"it cannot be asked (NVML code {handle})"
    return None


def event(kind: int, data: int) -> Complaint | None:
    """What an event of NVML says; an Xid by the policy for the kernel log's lines, without their message."""
    if kind != _XID:
        return _EVENTS.get(kind)
    meaning = policy.xid().of(data, "")
    advice = f"; {meaning.action}" if meaning.action else ""
    return f"Xid {data}", meaning.impact, f"{meaning.says}{advice}"


def judge(pci: str, values: Mapping[str, Any]) -> Iterator[Complaint]:
    """What the values of a GPU that answers say of it."""
    if action := values.get("recovery_action", 0):
        # The driver's verdict stands in Xid 154, too: one row decides for both.
        meaning = policy.xid().of(154, f"to 0x{action:x}")
        yield "recovery action", meaning.impact, f"{meaning.says} (action {action}); {meaning.action}"
    if values.get("remap_spent", 0):
        yield "row remap spent", Impact.SUSPECTS, f"{values['remap_spent']} memory banks have no spare row left"
    gpu = Gpu(pci, _as_nvidia_smi(values))
    for check in CHECKS:
        for code, impact, what in check(gpu):
            yield code, impact, what.replace("since the driver was loaded", "since the agent watches")


def of_all(stated: Mapping[str, list[Complaint]]) -> Iterator[Complaint]:
    """Takes out of `said` (by GPU) what all GPUs of a machine share and is its build or a setting; yields what it is."""
    for code in ("PCIe lanes", "fabric"):
        if len(stated) > 1 and all(any(one[0] == code for one in each) for each in stated.values()):
            for each in stated.values():
                each[:] = [one for one in each if one[0] != code]
            if code == "fabric":
                what = "the NVLink fabric is up on no GPU: start the fabric manager; do not replace GPUs"
                yield "fabric manager", Impact.SUSPECTS, what


def _as_nvidia_smi(values: Mapping[str, Any]) -> dict[Path, str]:
    """The values in the places where nvidia-smi prints them, for its checks."""
    reasons = values.get("clock_reasons", 0)
    found: dict[Path, str] = {
        ("clocks_event_reasons", name): "Active" for bit, name in _BRAKES.items() if reasons & bit
    }
    for name, path in (
        ("sram_uncorrected", ("ecc_errors", "volatile", "sram_uncorrectable")),
        ("dram_uncorrected", ("ecc_errors", "volatile", "dram_uncorrectable")),
        ("sram_lifetime", ("ecc_errors", "aggregate", "sram_uncorrectable")),
        ("remap_uncorrectable", ("remapped_rows", "uncorrectable_error")),
        ("pcie_width", ("link_width", "current")),
        ("pcie_width_max", ("link_width", "max")),
        ("busy", ("utilization", "gpu")),
    ):
        if name in values:
            found[path] = str(values[name])
    for name, path in (
        ("sram_exceeded", ("ecc_errors", "aggregate", "sram_threshold_exceeded")),
        ("remap_pending", ("remapped_rows", "pending")),
        ("remap_failure", ("remapped_rows", "remapping_failure_occurred")),
        ("retired_pending", ("retired_pages", "pending_retirement")),
    ):
        if name in values:
            found[path] = _YES.get(values[name], "Yes")
    for name, path in (
        ("power_mw", ("gpu_power_readings", "power_draw")),
        ("power_limit_mw", ("gpu_power_readings", "current_power_limit")),
    ):
        if name in values:
            found[path] = f"{values[name] / 1000:.2f} W"
    if state := _FABRIC.get(values.get("fabric_state", 0)):
        status = values.get("fabric_status", 0)
        found["fabric", "state"], found["fabric", "status"] = state, f"error {status}" if status else "success"
        if values.get("fabric_summary") == 2:
            found["fabric", "health", "summary"] = "Unhealthy"
        if values.get("fabric_health", 0) & 3 == 1:  # two bits a fact: 0 not offered, 1 true and bad, 2 false
            found["fabric", "health", "bandwidth"] = "Degraded"
    return found
