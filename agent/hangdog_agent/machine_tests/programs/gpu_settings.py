"""Reads the settings of all GPUs or, given what they should be, sets back what differs; run by the agent's own Python."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pynvml as n  # type: ignore[import-untyped]  # NVIDIA ships no types with it

from hangdog_agent.machine_tests.programs.report_line import ReportLines

#: Most GPUs of one machine.
_MOST = 64
#: Clock domains: graphics and memory.
_GRAPHICS, _MEMORY = 0, 2
#: Settings by name: how each is read. What a GPU or driver does not have is left out.
_READ: dict[str, Callable[[Any], Any]] = {
    "persistence mode": lambda gpu: n.nvmlDeviceGetPersistenceMode(gpu),
    "power limit in mW": lambda gpu: n.nvmlDeviceGetPowerManagementLimit(gpu),
    "compute mode": lambda gpu: n.nvmlDeviceGetComputeMode(gpu),
    "clocks in MHz": lambda gpu: [
        n.nvmlDeviceGetApplicationsClock(gpu, _MEMORY),
        n.nvmlDeviceGetApplicationsClock(gpu, _GRAPHICS),
    ],
    "ECC": lambda gpu: list(n.nvmlDeviceGetEccMode(gpu)),
    "MIG": lambda gpu: list(n.nvmlDeviceGetMigMode(gpu)),
}
#: How those are set that can be without a reset or a restart of the machine.
_SET: dict[str, Callable[[Any, Any], None]] = {
    "persistence mode": lambda gpu, value: n.nvmlDeviceSetPersistenceMode(gpu, value),
    "power limit in mW": lambda gpu, value: n.nvmlDeviceSetPowerManagementLimit(gpu, value),
    "compute mode": lambda gpu, value: n.nvmlDeviceSetComputeMode(gpu, value),
    "clocks in MHz": lambda gpu, value: n.nvmlDeviceSetApplicationsClocks(gpu, *value),
}


def settings() -> dict[str, dict[str, Any]]:
    """By UUID: an index may move."""
    found = {}
    for index in range(min(n.nvmlDeviceGetCount(), _MOST)):
        with contextlib.suppress(n.NVMLError):
            gpu = n.nvmlDeviceGetHandleByIndex(index)
            found[str(n.nvmlDeviceGetUUID(gpu))] = {"index": index, "settings": _of(gpu)}
    return found


def _of(gpu: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, read in _READ.items():
        with contextlib.suppress(n.NVMLError):
            values[name] = read(gpu)
    return values


def restore(wanted: dict[str, Any]) -> list[str]:
    """Sets back what differs; answers what could not be, in words."""
    failed = []
    for uuid, now in settings().items():
        gpu = n.nvmlDeviceGetHandleByIndex(now["index"])
        for name, value in wanted.get(uuid, {}).get("settings", {}).items():
            if now["settings"].get(name) != value and name in _SET:
                try:
                    _SET[name](gpu, value)
                except n.NVMLError as error:
                    failed.append(f"{name} of GPU {now['index']}: {error}")
    return failed


def main() -> None:
    stated = ReportLines()
    try:
        n.nvmlInit()
    except n.NVMLError as error:
        stated.found({"none": str(error)})
        return
    failed = restore(stated.asked["wanted"]) if "wanted" in stated.asked else []
    stated.found({"gpus": settings(), "failed": failed})


if __name__ == "__main__":
    main()
