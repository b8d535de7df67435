"""Asks NVML by itself, call by call, beside the agent's sweep: what each answers, with its code; a program of its own.

python -m gpu.families.nvml_calls all            every call that the checks make, and some more, once
python -m gpu.families.nvml_calls watch SECONDS  what load changes, twice a second
python -m gpu.families.nvml_calls events         a line for each event until its input ends
"""

import argparse
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from ctypes import Array, Structure, byref
from typing import Any

import pynvml as n  # type: ignore[import-untyped]  # NVIDIA ships no types with it

#: Calls on a device with their arguments. The first ones are those of the agent's sweep and of the machine tests.
CALLS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("nvmlDeviceGetUUID", ()),
    ("nvmlDeviceGetSerial", ()),
    ("nvmlDeviceGetPciInfo", ()),
    ("nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("nvmlDeviceGetPowerUsage", ()),
    ("nvmlDeviceGetEnforcedPowerLimit", ()),
    ("nvmlDeviceGetTemperature", (0,)),
    ("nvmlDeviceGetCurrPcieLinkWidth", ()),
    ("nvmlDeviceGetMaxPcieLinkWidth", ()),
    ("nvmlDeviceGetPcieReplayCounter", ()),
    ("nvmlDeviceGetTotalEccErrors", (1, 0)),
    ("nvmlDeviceGetMemoryErrorCounter", (1, 0, 7)),
    ("nvmlDeviceGetMemoryErrorCounter", (1, 0, 2)),
    ("nvmlDeviceGetMemoryErrorCounter", (1, 1, 7)),
    ("nvmlDeviceGetRetiredPagesPendingStatus", ()),
    ("nvmlDeviceGetUtilizationRates", ()),
    ("nvmlDeviceGetRemappedRows", ()),
    ("nvmlDeviceGetRowRemapperHistogram", ()),
    ("nvmlDeviceGetFieldValues", ([230],)),
    ("nvmlDeviceGetSupportedEventTypes", ()),
    ("nvmlDeviceGetPersistenceMode", ()),
    ("nvmlDeviceGetPowerManagementLimit", ()),
    ("nvmlDeviceGetComputeMode", ()),
    ("nvmlDeviceGetApplicationsClock", (2,)),
    ("nvmlDeviceGetApplicationsClock", (0,)),
    ("nvmlDeviceGetEccMode", ()),
    ("nvmlDeviceGetMigMode", ()),
    # not asked by the agent today
    ("nvmlDeviceGetName", ()),
    ("nvmlDeviceGetClockInfo", (1,)),
    ("nvmlDeviceGetClockInfo", (2,)),
    ("nvmlDeviceGetMaxClockInfo", (1,)),
    ("nvmlDeviceGetCurrPcieLinkGeneration", ()),
    ("nvmlDeviceGetMaxPcieLinkGeneration", ()),
    ("nvmlDeviceGetPcieThroughput", (0,)),
    ("nvmlDeviceGetPcieThroughput", (1,)),
    ("nvmlDeviceGetPerformanceState", ()),
    ("nvmlDeviceGetTotalEnergyConsumption", ()),
    ("nvmlDeviceGetMemoryInfo", ()),
    ("nvmlDeviceGetComputeRunningProcesses", ()),
    ("nvmlDeviceGetVirtualizationMode", ()),
    ("nvmlDeviceGetGspFirmwareVersion", ()),
    ("nvmlDeviceGetModuleId", ()),
    ("nvmlDeviceGetNumGpuCores", ()),
)
#: Layouts that a call fills in: the call, and the names of the layout, the newest first.
_FILLED = (
    ("nvmlDeviceGetSramEccErrorStatus", ("c_nvmlEccSramErrorStatus_v1_t",)),
    ("nvmlDeviceGetGpuFabricInfoV", ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfoV_t")),
)
#: What load changes, by the name that it has in the figures.
_WATCHED: tuple[tuple[str, str, tuple[object, ...]], ...] = (
    ("power mW", "nvmlDeviceGetPowerUsage", ()),
    ("SM clock MHz", "nvmlDeviceGetClockInfo", (1,)),
    ("memory clock MHz", "nvmlDeviceGetClockInfo", (2,)),
    ("PCIe generation", "nvmlDeviceGetCurrPcieLinkGeneration", ()),
    ("PCIe width", "nvmlDeviceGetCurrPcieLinkWidth", ()),
    ("busy %", "nvmlDeviceGetUtilizationRates", ()),
    ("clock reasons", "nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("temperature C", "nvmlDeviceGetTemperature", (0,)),
)
_LINKS, _APART_S = 20, 0.5
#: Those that the agent listens for; others come with every change of a clock.
_EVENTS = (0x8, 0x400, 0x800, 0x1000, 0x2000, 0x4000, 0x8000)
#: How often the end of the input is looked for between two waits for an event. Milliseconds.
_WAIT_MS = 200
#: The codes of a wait in which none came, and of an answer in a layout that one side does not know.
_NO_EVENT, _OTHER_LAYOUT = 10, 25


def asked(handle: Any, name: str, arguments: tuple[object, ...]) -> dict[str, Any]:
    """One call: its value, or the code that came instead; 13 where this library lacks it."""
    call: Callable[..., Any] | None = getattr(n, name, None)
    row: dict[str, Any] = {"call": name, "arguments": list(arguments)}
    began = time.perf_counter()
    try:
        row |= {"code": 13} if call is None else {"code": 0, "value": plain(call(handle, *arguments))}
    except n.NVMLError as error:
        row |= {"code": error.value}
    except (
        n.NVMLLibraryMismatchError
    ):  # the bindings are newer than the library, and the older layout is refused by them
        row |= {"code": _OTHER_LAYOUT}
    except Exception as error:  # noqa: BLE001 - the bindings themselves fail on some answers: that is a figure, too
        row |= {"code": -1, "error": f"{type(error).__name__}: {error}"[:200]}
    return row | {"ms": round(1000 * (time.perf_counter() - began), 3)}


def filled(handle: Any, name: str, layout: str) -> dict[str, Any]:
    """One call that fills in a structure."""
    kind = getattr(n, layout, None)
    if kind is None:
        return {"call": name, "arguments": [layout], "code": 13}
    answer = kind()
    row = asked(handle, name, (byref(answer),))
    return row | {"arguments": [layout]} | ({"value": plain(answer)} if row["code"] == 0 else {})


def plain(value: Any) -> Any:
    """An answer as JSON has it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, list | tuple | Array):
        return [plain(one) for one in value]
    if isinstance(value, int | float | str | bool) or value is None:
        return value
    if fields := getattr(value, "__dict__", None):  # what the bindings make of some structures
        return {name: plain(one) for name, one in fields.items()}
    return repr(value)[:200]


def of_device(index: int) -> Iterator[dict[str, Any]]:
    handle = n.nvmlDeviceGetHandleByIndex(index)
    for name, arguments in CALLS:
        yield asked(handle, name, arguments)
    for name, layouts in _FILLED:
        for layout in layouts:
            yield filled(handle, name, layout)
    for link in range(_LINKS):
        row = asked(handle, "nvmlDeviceGetNvLinkState", (link,))
        yield row
        if row["code"]:
            return


def all_calls() -> dict[str, Any]:
    gpus = [list(of_device(index)) for index in range(n.nvmlDeviceGetCount())]
    library = {}
    for name in ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion"):
        with contextlib.suppress(n.NVMLError):
            library[name] = plain(getattr(n, name)())
    return {"library": library, "gpus": gpus, "events": registered()}


def registered() -> dict[str, Any]:
    """Which events the first GPU offers, and what came of asking for each kind."""
    found: dict[str, Any] = {}
    try:
        events = n.nvmlEventSetCreate()
        handle = n.nvmlDeviceGetHandleByIndex(0)
        found["offered"] = f"{n.nvmlDeviceGetSupportedEventTypes(handle):#x}"
    except n.NVMLError as error:
        return {"code": error.value}
    for bit in _EVENTS:
        try:
            n.nvmlDeviceRegisterEvents(handle, bit, events)
            found[f"{bit:#x}"] = 0
        except n.NVMLError as error:
            found[f"{bit:#x}"] = error.value
    return found


def watch(seconds: float) -> list[dict[str, Any]]:
    """Samples of the first GPU."""
    handle = n.nvmlDeviceGetHandleByIndex(0)
    samples, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        samples.append({name: asked(handle, call, arguments).get("value") for name, call, arguments in _WATCHED})
        time.sleep(_APART_S)
    return samples


def events() -> None:
    """Prints each event with the moment at which it came, until the input ends."""
    handle, collected = n.nvmlDeviceGetHandleByIndex(0), n.nvmlEventSetCreate()
    n.nvmlDeviceRegisterEvents(handle, n.nvmlDeviceGetSupportedEventTypes(handle) & sum(_EVENTS), collected)
    reader = threading.Thread(target=sys.stdin.read, daemon=True)
    reader.start()
    print(json.dumps({"listens": time.monotonic()}), flush=True)
    while reader.is_alive():
        try:
            event = n.nvmlEventSetWait_v2(collected, _WAIT_MS)
        except n.NVMLError as error:
            if error.value != _NO_EVENT:
                print(json.dumps({"failed": error.value}), flush=True)
                time.sleep(_APART_S)
            continue
        print(json.dumps({"at": time.monotonic(), "type": event.eventType, "data": event.eventData}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["all", "watch", "events"])
    parser.add_argument("seconds", nargs="?", type=float, default=1.0)
    options = parser.parse_args()
    n.nvmlInit()
    if options.what == "events":
        events()
    else:
        print(json.dumps(all_calls() if options.what == "all" else watch(options.seconds)))


if __name__ == "__main__":
    main()
