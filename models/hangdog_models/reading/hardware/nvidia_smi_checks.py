"""What the values of one GPU say of it, as `nvidia-smi -q` prints them; each check says where its threshold is from."""

import re
from collections.abc import Callable, Iterable, Iterator

from hangdog_models.findings import Impact
from hangdog_models.reading.hardware.nvidia_smi_query import Gpu
from hangdog_models.reading.printable import printable

#: Lifetime count of uncorrectable SRAM errors above which NVIDIA replaces an A100 (GPU memory error management guide).
_SRAM_LIFETIME = 4
#: Share of fields without an answer from which a GPU does not answer at all; real outputs have single ones.
_SILENT = 0.5
#: Per cent of time busy from which a PCIe generation counts (it drops when idle) and a spinning wait is one.
_BUSY = 50.0
#: Share of its power limit below which a GPU that is always busy waits in a spinning kernel: NCCL's kernels draw about a
#: quarter (field notes); a computing one draws more than half.
_SPINNING = 0.35
#: What one look alone leaves open: how busy it was is told of the last second, and its power is an average that lags. An H200 that
#: had just begun to multiply was busy for 99 % at 221 W, and drew 690 W a second later.
ONE_LOOK = ", or has only just begun to compute"
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,6})?")

#: Code, bearing, and a sentence that follows the GPU's address.
Complaint = tuple[str, Impact, str]


def _silent(gpu: Gpu) -> Iterator[Complaint]:
    values = [value.lower() for value in gpu.values.values()]
    if any("gpu is lost" in value for value in values):
        yield "GPU lost", Impact.CONVICTS, "the driver has lost it"
    elif any("gpu requires reset" in value for value in values):
        yield "reset required", Impact.RESET, "it wants a reset"
    else:
        mute = sum(value.strip("[]") in ("unknown error", "err!") for value in values)
        if len(values) >= 4 and mute >= _SILENT * len(values):
            yield "GPU lost", Impact.CONVICTS, f"{mute} of {len(values)} fields have no answer"


def _reset(gpu: Gpu) -> Iterator[Complaint]:
    for name, says in (
        ("reset_required", "the driver asks for a reset"),
        ("drain_and_reset_recommended", "the driver asks to drain and reset it"),
    ):
        if "Yes" in gpu.get("gpu_reset_status", name):
            yield "reset required", Impact.RESET, says
    for action in gpu.get("gpu_recovery_action", "gpu_recovery_action"):
        # The driver's own verdict (NVML field 230): any other than none is to be acted on.
        if action.strip("[]").lower() not in ("none", "n/a", "unknown error", "not supported", "unknown"):
            yield "recovery action", Impact.RESET, f"the driver asks for: {printable(action, 80)}"


def _brakes(gpu: Gpu) -> Iterator[Complaint]:
    """Only what hardware holds back: a software power cap is normal under load."""
    section = "clocks_event_reasons", "clocks_throttle_reasons"
    active = {
        name
        for name in ("hw_power_brake_slowdown", "hw_thermal_slowdown", "hw_slowdown")
        for part in section
        if "Active" in gpu.get(part, name)
    }
    if "hw_power_brake_slowdown" in active:
        yield (
            "HW power brake",
            Impact.SLOWS,
            "the hardware power brake holds it back: look at the machine's power supply",
        )
    if "hw_thermal_slowdown" in active:
        yield "HW thermal slowdown", Impact.SLOWS, "the hardware slows it for heat: look at the machine's cooling"
    if active == {"hw_slowdown"}:
        yield "HW slowdown", Impact.SLOWS, "the hardware slows it, without saying why"


def _memory(gpu: Gpu) -> Iterator[Complaint]:
    """Counts since the driver was loaded concern this incident, counts over the GPU's life alone are old news."""
    sram, dram = _count(gpu, "volatile", "sram_uncorrectable"), _count(gpu, "volatile", "dram_uncorrectable")
    double = sum(  # as GPUs before Ampere count them
        n
        for p, v in gpu.values.items()
        if {"volatile", "double_bit"} <= set(p) and p[-1] == "total"
        for n in _numbers([v])
    )
    lifetime = _count(gpu, "aggregate", "sram_uncorrectable")
    exceeded = "Yes" in gpu.get("ecc_errors", "sram_threshold_exceeded")
    due = exceeded or lifetime > _SRAM_LIFETIME
    counted = f"{sram:.0f} uncorrectable SRAM errors since the driver was loaded, {lifetime:.0f} over its life"
    if sram and due:
        yield "SRAM errors", Impact.CONVICTS, f"{counted}: due for replacement"
    elif sram:
        yield "SRAM errors", Impact.RESET, f"{counted}: reset it"
    elif exceeded:
        # NVIDIA's own flag for a replacement in the field.
        yield "SRAM threshold", Impact.CONVICTS, "its SRAM errors exceed NVIDIA's threshold: due for replacement"
    elif due:
        yield "SRAM lifetime", Impact.TELLS_NOTHING, f"{counted}: due for replacement some day, but nothing new"
    if dram or double:
        count = max(dram, double)
        # A page with such an error is taken away from its process; the GPU goes on (NVIDIA: contained, as Xid 94).
        yield "DRAM errors", Impact.SUSPECTS, f"{count:.0f} uncorrectable memory errors since the driver was loaded"


def _rows(gpu: Gpu) -> Iterator[Complaint]:
    if "Yes" in gpu.get("remapped_rows", "remapping_failure_occurred", "remapped_row_failure"):
        yield "row remap failure", Impact.CONVICTS, "a faulty memory row could not be remapped: replace it"
    if "Yes" in gpu.get("remapped_rows", "pending"):
        broken = any(_numbers(gpu.get("remapped_rows", "uncorrectable_error", "row_unc")))
        if broken:
            yield "row remap pending", Impact.RESET, "uncorrectable memory errors, and the spare row waits for a reset"
        else:
            # NVIDIA lets the application go on; the row is exchanged at the next reset.
            yield (
                "row remap pending",
                Impact.SUSPECTS,
                "a memory row is to be exchanged at the next reset; correct until then",
            )
    if "Yes" in gpu.get("retired_pages", "pending_page_blacklist", "pending_blacklist", "pending_retirement"):
        yield "page retirement pending", Impact.SUSPECTS, "a memory page is to be retired at the next reset"


def _link(gpu: Gpu) -> Iterator[Complaint]:
    for part, unit in (("link_width", "lanes"), ("link_widths", "lanes"), ("pcie_generation", "generation"), ("pcie_gen", "generation")):  # fmt: skip
        most = max(_numbers(gpu.exactly(part, "max", "max_link_width", "max_link_gen")), default=0.0)
        now = max(_numbers(gpu.exactly(part, "current", "current_link_width", "current_link_gen")), default=most)
        if 0 < now < most and (unit == "lanes" or _busy(gpu) >= _BUSY):
            yield f"PCIe {unit}", Impact.SLOWS, f"its PCIe link runs at {now:.0f} of {most:.0f} {unit}"


def _fabric(gpu: Gpu) -> Iterator[Complaint]:
    state = next(gpu.exactly("fabric", "state"), "").lower()
    status = next(gpu.exactly("fabric", "status"), "").lower()
    if state in ("in progress", "not started") or (state == "completed" and status not in ("success", "n/a", "")):
        yield (
            "fabric",
            Impact.CONVICTS,
            f"its NVLink fabric is not up ({state}, {printable(status, 40)}): CUDA does not start there",
        )
    if "Unhealthy" in gpu.get("health", "summary"):
        yield "fabric", Impact.CONVICTS, "its NVLink fabric is unhealthy"
    if "Degraded" in gpu.get("health", "bandwidth"):
        yield "fabric bandwidth", Impact.SLOWS, "its NVLink fabric runs with less bandwidth"


def _spinning(gpu: Gpu) -> Iterator[Complaint]:
    sections = ("gpu_power_readings", "power_readings")
    draw = next((n for part in sections for n in _numbers(gpu.get(part, "power_draw"))), 0.0)
    limit = next((n for part in sections for n in _numbers(gpu.get(part, "current_power_limit", "power_limit"))), 0.0)
    if _busy(gpu) >= 90 and 0 < draw < _SPINNING * limit:
        what = f"busy at {draw:.0f} of {limit:.0f} W: it waits in a kernel that spins{ONE_LOOK}"
        yield "spinning", Impact.TELLS_NOTHING, what


#: Each check yields what it finds of one GPU.
CHECKS: tuple[Callable[[Gpu], Iterator[Complaint]], ...] = (
    _silent, _reset, _brakes, _memory, _rows, _link, _fabric, _spinning,
)  # fmt: skip


def _busy(gpu: Gpu) -> float:
    return max(_numbers(gpu.exactly("utilization", "gpu", "gpu_util")), default=0.0)


def _count(gpu: Gpu, section: str, name: str) -> float:
    """The sum of all counters whose name begins so: newer drivers tell parity from SEC-DED."""
    return sum(n for p, v in gpu.values.items() if section in p and p[-1].startswith(name) for n in _numbers([v]))


def _numbers(values: Iterable[str]) -> list[float]:
    """The leading number of each value that has one: `16x`, `67.74 W`, `100 %`."""
    return [float(number[0]) for value in values if (number := _NUMBER.match(value))]
