"""Checks the PCIe links of GPUs and network cards: narrower than they were, or than those of their like; or gone.

The speed is not judged: an idle link lowers it to save power, while its width stays.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hangdog_agent.checks.check_paths import CheckPaths, names, number, text
from hangdog_agent.checks.check_result import CheckKind, CheckResult, Component, Moment, state
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.strikes import Strikes
from hangdog_models.findings import Impact
from hangdog_models.reading.hardware.pci import canonical

_SOURCE = "PCIe"
#: Classes of devices, their first four digits: display, 3D, InfiniBand, and Ethernet of Mellanox only.
_CLASSES, _ETHERNET, _MELLANOX = ("0x0300", "0x0302", "0x0207"), "0x0200", "0x15b3"
_NVIDIA = "0x10de"
#: Widest link there is; what is wider, or 0, is a device that answers nothing or sleeps.
_WIDEST = 32
#: Looks in which a device must be missing.
_LOOKS = 2
#: Devices of a machine that are looked at.
_MOST = 512


@dataclass(frozen=True, slots=True)
class _Device:
    address: str
    model: str
    width: int | None
    most: int


class Pcie:
    """The check."""

    name = "pcie"

    def __init__(self, places: CheckPaths, settings: CheckSettings, notes: Notes) -> None:
        self.every_s = settings.pcie_every_s
        self._root = places.sys / "bus/pci/devices"
        self._notes = notes
        self._strikes = Strikes(_LOOKS, settings.network_window_s)
        self._best = _recalled(notes.recall(self.name))

    def supported(self) -> str:
        return "" if self._best or self._devices() else "there is no GPU and no InfiniBand card on the PCIe bus"

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        devices = self._devices()
        found: list[CheckResult] = []
        for address, device in devices.items():
            best = self._best[address] = max(self._best.get(address, 0), device.width or 0)
            if device.width is not None and device.width < (wide := max(best, _usual(device, devices))):
                words = f"the PCIe link of {address} runs at {device.width} of {wide} lanes"
                found.append(self._result(address, ("PCIe lanes", Impact.SLOWS, words), moment))
        for address in self._best.keys() - devices.keys():
            if not self._strikes.strike(address, moment.now):
                continue  # an operator takes a device off the bus and puts it back to reset it
            words = f"the PCIe device {address} is gone from the bus"
            found.append(self._result(address, ("PCIe device lost", Impact.CONVICTS, words), moment))
        self._notes.note(self.name, {"best": self._best})
        return tuple(found)

    def close(self) -> None:
        pass

    def gpus(self) -> int:
        """How many GPUs of NVIDIA's are on the bus, whatever their driver says."""
        return sum(device.model.startswith(_NVIDIA) for device in self._devices().values())

    def _devices(self) -> dict[str, _Device]:
        found: dict[str, _Device] = {}
        for name in names(self._root):
            folder = self._root / name
            vendor, kind = _word(folder / "vendor"), _word(folder / "class")[:6]
            watched = kind in _CLASSES[:2] and vendor == _NVIDIA
            watched |= kind == _CLASSES[2] or (kind == _ETHERNET and vendor == _MELLANOX)
            # A virtual function has no link of its own, and comes and goes with the containers that use it.
            if not watched or "physfn" in names(folder) or len(found) >= _MOST:
                continue
            width, most = number(folder / "current_link_width"), number(folder / "max_link_width")
            real = width if width is not None and 0 < width <= _WIDEST else None
            address = canonical(name) if name.endswith(".0") else name
            found[address] = _Device(address, f"{vendor}:{_word(folder / 'device')}", real, most or 0)
        return found

    def _result(self, address: str, stated: tuple[str, Impact, str], moment: Moment) -> CheckResult:
        return state(self.name, _SOURCE, Component(CheckKind.SLOT, address, pci=address), stated, moment)


def _usual(device: _Device, devices: dict[str, _Device]) -> int:
    """How wide the links of most devices of a model are: all narrow alike is how the board is wired."""
    widths = Counter(other.width for other in devices.values() if other.model == device.model and other.width)
    width, count = widths.most_common(1)[0] if widths else (0, 0)
    return width or 0 if 2 * count > sum(widths.values()) else 0


def _word(path: Any) -> str:
    read = text(path, 64)
    return read.strip().lower() if isinstance(read, str) else ""


def _recalled(noted: dict[str, Any]) -> dict[str, int]:
    best = noted.get("best")
    return {key: width for key, width in best.items() if isinstance(width, int)} if isinstance(best, dict) else {}
