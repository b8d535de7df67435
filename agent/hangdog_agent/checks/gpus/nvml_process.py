"""The child that asks NVML: one line in, `light` or `full`, one JSON document out, until its input ends.

It is a process of its own because a wedged driver never answers; its parent then kills it or leaves it behind. It stays
for many sweeps, for events before their registration are lost, and starting NVML costs more than asking it.
"""

import contextlib
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from ctypes import byref
from typing import Any

import pynvml as n  # type: ignore[import-untyped]  # NVIDIA ships no types with it

#: GPUs, links of a GPU, and events of one sweep; the largest machines have 16 GPUs with 36 links each.
_MOST_GPUS, _MOST_LINKS, _MOST_EVENTS = 64, 36, 256
#: Field 230: the driver's own verdict, from driver 570 on.
_RECOVERY_ACTION = 230
#: Value types of a field, as NVML numbers them, and where its union holds them.
_UNION = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
#: Answers that mean that no further link exists: invalid argument, not supported.
_NO_MORE = (2, 3)
#: Events that are asked for: Xid, memory retirement, poison, unavailable, recovery action.
_EVENTS = 0x8 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000
_FUNCTION_NOT_FOUND, _VERSION_MISMATCH = 13, 25
#: Uncorrected errors; since the driver was loaded (volatile), or ever (aggregate); in SRAM, or in DRAM.
_UNCORRECTED, _VOLATILE, _AGGREGATE, _SRAM, _DRAM = 1, 0, 1, 7, 2

#: What one number answers, by the name it has in the document.
_LIGHT = (
    ("clock_reasons", "nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("power_mw", "nvmlDeviceGetPowerUsage", ()),
)
_FULL = (
    ("power_limit_mw", "nvmlDeviceGetEnforcedPowerLimit", ()),
    ("temperature", "nvmlDeviceGetTemperature", (0,)),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", ()),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", ()),
    ("pcie_replays", "nvmlDeviceGetPcieReplayCounter", ()),
    ("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", (_UNCORRECTED, _VOLATILE)),
    ("sram_uncorrected", "nvmlDeviceGetMemoryErrorCounter", (_UNCORRECTED, _VOLATILE, _SRAM)),
    ("dram_uncorrected", "nvmlDeviceGetMemoryErrorCounter", (_UNCORRECTED, _VOLATILE, _DRAM)),
    ("sram_lifetime", "nvmlDeviceGetMemoryErrorCounter", (_UNCORRECTED, _AGGREGATE, _SRAM)),
    ("retired_pending", "nvmlDeviceGetRetiredPagesPendingStatus", ()),
)


class _NvmlDevice:
    """What is asked of one GPU: values by name, and the code of NVML for each that has none."""

    def __init__(self, index: int) -> None:
        self.document: dict[str, Any] = {"index": index, "handle": 0, "values": {}, "errors": {}}
        self._values, self._errors = self.document["values"], self.document["errors"]
        self._handle: Any = None
        try:
            self._handle = n.nvmlDeviceGetHandleByIndex(index)
        except n.NVMLError as error:
            self.document["handle"] = error.value

    def sweep(self, full: bool) -> None:
        if self._handle is None:
            return
        for name, function in (("uuid", "nvmlDeviceGetUUID"), ("serial", "nvmlDeviceGetSerial")):
            self.document[name] = _text(self._ask(name, function))
        pci = self._ask("pci", "nvmlDeviceGetPciInfo")
        self.document["pci"] = _text(pci.busId) if pci is not None else ""
        self._fields([("recovery_action", _RECOVERY_ACTION)])
        for name, function, arguments in (*_LIGHT, *(_FULL if full else ())):
            self._put(name, self._ask(name, function, *arguments))
        use = self._ask("busy", "nvmlDeviceGetUtilizationRates")
        self._put("busy", None if use is None else use.gpu)
        if full:
            self._rows()
            self._sram()
            self._links()
            self._fabric()

    def listen(self, events: Any) -> None:
        """Has the events of this GPU put into a set, as far as it offers them."""
        supported = self._ask("events", "nvmlDeviceGetSupportedEventTypes") if self._handle is not None else None
        if supported is not None:
            self._ask("events", "nvmlDeviceRegisterEvents", supported & _EVENTS, events)

    def _ask(self, name: str, function: str, *arguments: object) -> Any:
        """The answer of one call; None with its code among the errors. A library that lacks it answers 13, as NVML does."""
        call: Callable[..., Any] | None = getattr(n, function, None)
        if call is None:
            self._errors[name] = _FUNCTION_NOT_FOUND
            return None
        try:
            return call(self._handle, *arguments)
        except n.NVMLError as error:
            self._errors[name] = error.value
            return None

    def _put(self, name: str, value: Any) -> None:
        if value is not None:
            self._values[name] = value

    def _fields(self, wanted: list[tuple[str, int]]) -> None:
        """Fields succeed as a whole while each carries a code of its own: on a lost GPU each is 0 with code 15."""
        fields = self._ask(wanted[0][0], "nvmlDeviceGetFieldValues", [field for _, field in wanted])
        for (name, _), field in zip(wanted, fields if fields is not None else (), strict=False):
            if field.nvmlReturn:
                self._errors[name] = field.nvmlReturn
            elif field.valueType in _UNION:
                self._values[name] = getattr(field.value, _UNION[field.valueType])

    def _rows(self) -> None:
        rows = self._ask("remap", "nvmlDeviceGetRemappedRows")
        for name, value in zip(("correctable", "uncorrectable", "pending", "failure"), rows or (), strict=False):
            self._values[f"remap_{name}"] = value
        left = self._ask("remap_spent", "nvmlDeviceGetRowRemapperHistogram")
        self._put("remap_spent", None if left is None else getattr(left, "none", None))

    def _sram(self) -> None:
        if struct := getattr(n, "c_nvmlEccSramErrorStatus_v1_t", None):
            answer = struct()
            if self._ask("sram_exceeded", "nvmlDeviceGetSramEccErrorStatus", byref(answer)) is not None:
                self._values["sram_exceeded"] = answer.bThresholdExceeded

    def _links(self) -> None:
        links: list[int] = []
        for link in range(_MOST_LINKS):
            state = self._ask("nvlinks", "nvmlDeviceGetNvLinkState", link)
            if state is None:
                if self._errors["nvlinks"] in _NO_MORE:
                    del self._errors["nvlinks"]
                break
            links.append(state)
        if links:
            self._values["nvlinks"] = links

    def _fabric(self) -> None:
        """The newest layout first: a driver that does not know it says so."""
        for name in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfoV_t"):
            if struct := getattr(n, name, None):
                answer = struct()
                self._errors.pop("fabric", None)
                if self._ask("fabric", "nvmlDeviceGetGpuFabricInfoV", byref(answer)) is not None:
                    self._values["fabric_state"], self._values["fabric_status"] = answer.state, answer.status
                    self._values["fabric_health"] = answer.healthMask
                    self._put("fabric_summary", getattr(answer, "healthSummary", None))
                if self._errors.get("fabric") != _VERSION_MISMATCH:
                    return


class _Session:
    """NVML between its start and the end of this process."""

    def __init__(self) -> None:
        self._started = False
        self._events: Any = None

    def sweep(self, full: bool) -> dict[str, Any]:
        document: dict[str, Any] = {"init": 0, "count": 0, "driver": "", "full": full, "gpus": [], "events": []}
        try:
            if not self._started:
                n.nvmlInit()
                self._started = True
            document["count"] = count = n.nvmlDeviceGetCount()
        except n.NVMLError as error:
            return document | {"init": error.value}
        with contextlib.suppress(n.NVMLError):
            document["driver"] = _text(n.nvmlSystemGetDriverVersion())
        gpus = [_NvmlDevice(index) for index in range(min(count, _MOST_GPUS))]
        if self._events is None:
            with contextlib.suppress(n.NVMLError):
                self._events = n.nvmlEventSetCreate()
                for gpu in gpus:
                    gpu.listen(self._events)
        for gpu in gpus:
            gpu.sweep(full)
        return document | {"gpus": [gpu.document for gpu in gpus], "events": self._read_events()}

    def _read_events(self) -> list[dict[str, Any]]:
        received: list[dict[str, Any]] = []
        if self._events is None:
            return received
        with contextlib.suppress(n.NVMLError):  # code 10 says that there are no more
            while len(received) < _MOST_EVENTS:
                event = n.nvmlEventSetWait_v2(self._events, 0)
                received.append({"type": event.eventType, "data": event.eventData, "pci": _address(event.device)})
        return received


def _address(handle: Any) -> str:
    try:
        return _text(n.nvmlDeviceGetPciInfo(handle).busId)
    except n.NVMLError:
        return ""


def _text(value: object) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value or "")


def _obey(lines: queue.SimpleQueue[str]) -> None:
    """Passes on what is asked; ends the process with its input, even while NVML keeps the other thread."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def main() -> None:
    """Answers one document for each line, until there are no more."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_obey, args=(lines,), daemon=True).start()
    session = _Session()
    while True:
        document = session.sweep(full=lines.get().strip() == "full")
        print(json.dumps(document, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
