"""Checks the GPUs through NVML, which a child asks; remembers who they were, for a lost GPU cannot be asked any more."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hangdog_agent.checks.check_result import CheckKind, CheckResult, Component, Moment, state
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.gpus import gpu_thresholds
from hangdog_agent.checks.gpus.gpu_thresholds import Complaint
from hangdog_agent.checks.gpus.nvml_client import NvmlAnswer, Sweeper
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.strikes import Strikes
from hangdog_models.findings import Impact
from hangdog_models.reading.hardware.nvidia_smi_checks import ONE_LOOK
from hangdog_models.reading.hardware.pci import canonical

_SOURCE = "NVML"
#: What a look that found nobody to ask is called: no news of a machine that is watched, an open question of one under test.
NOT_ASKED = "NVML not asked"
_MACHINE = Component(CheckKind.MACHINE)
#: Counters of a driver's life: only what was added since the agent saw them first concerns a job of now.
_COUNTERS = ("ecc_uncorrected", "sram_uncorrected", "dram_uncorrected")
#: Values that evidence quotes.
_QUOTED = ("recovery_action", "sram_uncorrected", "dram_uncorrected", "sram_exceeded", "remap_uncorrectable",
           "remap_pending", "remap_failure", "clock_reasons", "power_mw", "busy", "temperature")  # fmt: skip
#: Codes that a GPU's clock may show for a moment without harm.
_BRAKES = ("HW power brake", "HW thermal slowdown", "HW slowdown")
#: Seconds over which sightings of a brake are counted.
_BRAKE_WINDOW_S = 600.0
#: Sweeps in a row in which a GPU must be busy at little power, and no matter how far apart they are.
_SPIN_SIGHTINGS = 2
#: Full sweeps in which a link must be down.
_LINK_SIGHTINGS = 2
#: Answers without a document in a row that make a wedged driver: once may be a machine short of time.
_BLOWN = 2


@dataclass(slots=True)
class _Gpu:
    """One GPU as it was seen last; `base` are its counters when they were seen first."""

    component: Component
    values: dict[str, Any] = field(default_factory=dict)
    base: dict[str, int] = field(default_factory=dict)
    links: list[int] = field(default_factory=list)


class Gpus:
    """The check. `at` names the GPU at a PCI address, for others."""

    name = "gpu"

    def __init__(self, settings: CheckSettings, notes: Notes, sweeper: Sweeper | None = None) -> None:
        self.every_s = settings.gpu_every_s
        self._settings = settings
        self._notes = notes
        self._sweeper = sweeper or Sweeper(settings)
        self._known = _recalled(notes.recall(self.name))
        self._brakes = Strikes(settings.brake_sightings, _BRAKE_WINDOW_S)
        self._spins = Strikes(_SPIN_SIGHTINGS, float("inf"))
        self._downs = Strikes(_LINK_SIGHTINGS, settings.network_window_s)
        self._first: NvmlAnswer | None = None
        self._full_at = float("-inf")
        self._blown = 0
        self._last_event = 0

    def at(self, pci: str) -> Component | None:
        """The GPU at this canonical address, present or lost."""
        return next((gpu.component for gpu in list(self._known.values()) if gpu.component.pci == pci), None)

    def power(self) -> Mapping[str, tuple[float, float]]:
        """Per GPU (by PCI address) its power as a share of its limit and how busy it is, 0 to 1, in the last sweep.

        GPUs that did not answer in it are absent. A GPU that is busy at a quarter of its power spins in a wait.
        """
        found = {}
        for gpu in list(self._known.values()):
            draw, limit, busy = (gpu.values.get(name) for name in ("power_mw", "power_limit_mw", "busy"))
            if draw is not None and limit and busy is not None:
                found[gpu.component.pci] = draw / limit, busy / 100
        return found

    def supported(self) -> str:
        answer = self._sweeper.ask(full=True)
        init, known = answer.document.get("init", 0), bool(self._known)
        if not (answer.document or answer.blown or known):
            return f"NVML cannot be asked: {answer.why}"
        if answer.document and not known:
            if init == gpu_thresholds.NO_LIBRARY:
                return "no NVIDIA driver is installed (there is no libnvidia-ml.so.1)"
            if init == gpu_thresholds.NO_DRIVER:
                return "the NVIDIA driver is not loaded"
            if not init and not answer.document.get("count"):
                return "NVML finds no GPU"
        self._first = answer
        return ""

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        full = moment.now - self._full_at >= self._settings.gpu_full_s
        answer, self._first = self._first or self._sweeper.ask(full), None
        for gpu in self._known.values():
            gpu.values.pop("busy", None)  # of this moment only
        if not answer.document:
            return self._no_answer(answer, moment)
        self._blown = 0
        if answer.document.get("full"):
            self._full_at = moment.now
        if init := answer.document.get("init"):
            self._sweeper.let_go()
            return (state(self.name, _SOURCE, _MACHINE, gpu_thresholds.unstartable(init), moment),)
        results = [*self._present(answer.document, moment), *self._events(answer.document, moment)]
        if any(result.code in ("GPU lost", "reset required") for result in results):
            # A new child each time lets the device go in between, so that it can be reset, and sees it come back.
            self._sweeper.let_go()
            self._full_at = float("-inf")
        self._remember()
        return tuple(results)

    def close(self) -> None:
        self._sweeper.close()

    def _no_answer(self, answer: NvmlAnswer, moment: Moment) -> tuple[CheckResult, ...]:
        if not answer.blown:
            stated: Complaint = NOT_ASKED, Impact.TELLS_NOTHING, f"NVML could not be asked: {answer.why}"
            return (state(self.name, _SOURCE, _MACHINE, stated, moment),)
        self._blown += 1
        self._full_at = float("-inf")
        impact = Impact.CONVICTS if self._blown >= _BLOWN else Impact.SUSPECTS
        often = f", {self._blown} times in a row" if self._blown > 1 else ""
        stated = "NVML hangs", impact, f"the GPU driver does not answer: {answer.why}{often}"
        return (state(self.name, _SOURCE, _MACHINE, stated, moment, (answer.where,)),)

    def _present(self, document: Mapping[str, Any], moment: Moment) -> list[CheckResult]:
        by_index = {gpu.component.name: key for key, gpu in self._known.items()}
        stated: dict[str, list[Complaint]] = {}
        for entry in document.get("gpus", ()):
            uuid, index = entry.get("uuid"), str(entry.get("index"))
            key = uuid or by_index.get(index) or f"index {index}"
            gpu = self._known.setdefault(key, _Gpu(Component(CheckKind.GPU, index)))
            if uuid:
                pci = canonical(entry.get("pci") or gpu.component.pci)
                serial = entry.get("serial") or gpu.component.serial
                gpu.component = Component(CheckKind.GPU, index, uuid, serial, pci)
            values, errors = entry.get("values", {}), entry.get("errors", {})
            if gone := gpu_thresholds.lost(entry.get("handle", 0), values, errors):
                stated[key] = [gone]
                continue
            if not uuid:  # it may not be asked: in a container that was given none of it
                stated[key] = []
                continue
            self._take(gpu, values)
            stated[key] = [*gpu_thresholds.judge(gpu.component.pci, self._counted(gpu))]
            stated[key] += self._links(gpu, moment, bool(document.get("full")))
        for key in self._known.keys() - stated.keys():
            if self._known[key].component.uuid:
                stated[key] = [("GPU lost", Impact.CONVICTS, "the driver does not list it any more")]
        of_all = [state(self.name, _SOURCE, _MACHINE, each, moment) for each in gpu_thresholds.of_all(stated)]
        return [*of_all, *(one for key, each in stated.items() for one in self._results(key, each, moment))]

    def _take(self, gpu: _Gpu, values: Mapping[str, Any]) -> None:
        for name in _COUNTERS:
            if name in values:
                # A counter that fell was set back; what it shows now has been added since.
                base = gpu.base.setdefault(name, values[name])
                gpu.base[name] = 0 if values[name] < max(base, gpu.values.get(name, 0)) else base
        gpu.values.update(values)

    def _counted(self, gpu: _Gpu) -> dict[str, Any]:
        return gpu.values | {n: gpu.values[n] - gpu.base.get(n, 0) for n in _COUNTERS if n in gpu.values}

    def _links(self, gpu: _Gpu, moment: Moment, full: bool) -> list[Complaint]:
        """Links that were up once and are down in two full sweeps: a part that never had them all shows no such thing."""
        now, best = gpu.values.get("nvlinks", []), gpu.links
        gpu.links = [max(pair) for pair in zip(best, now, strict=True)] if len(best) == len(now) else list(now)
        down = [str(link) for link, (was, is_up) in enumerate(zip(gpu.links, now, strict=True)) if was and not is_up]
        key = gpu.component.uuid
        if full and not down:
            self._downs.heal(key)
        elif full:
            self._downs.strike(key, moment.now)
            self._full_at = float("-inf")  # a link that is trained anew is up again by the next sweep
        lasting = down and self._downs.counts(key, moment.now)
        return [("NVLink down", Impact.CONVICTS, f"its NVLink {', '.join(down)} is down")] if lasting else []

    def _results(self, key: str, stated: list[Complaint], moment: Moment) -> list[CheckResult]:
        gpu = self._known[key]
        evidence = [f"{name} = {gpu.values[name]}" for name in _QUOTED if name in gpu.values]
        found = []
        if all(code != "spinning" for code, *_ in stated):
            self._spins.heal(key)
        for code, impact, what in stated:
            counts = not code.startswith(_BRAKES) or self._brakes.strike(f"{key} {code}", moment.now)
            if code == "spinning":
                counts, what = self._spins.strike(key, moment.now), what.removesuffix(ONE_LOOK)
            if counts:
                mark = what if code.endswith(" errors") else ""  # each further error is news
                words = code, impact, f"GPU {_called(gpu.component)}: {what}"
                found.append(state(self.name, _SOURCE, gpu.component, words, moment, [", ".join(evidence)], mark))
        return found

    def _events(self, document: Mapping[str, Any], moment: Moment) -> list[CheckResult]:
        found = []
        for received in document.get("events", ()):
            stated = gpu_thresholds.event(received.get("type", 0), received.get("data", 0))
            if stated is None:
                continue
            self._last_event += 1
            pci = canonical(received.get("pci", ""))
            component = self.at(pci) or Component(CheckKind.GPU, pci, pci=pci)
            words = stated[0], stated[1], f"{stated[0]} on GPU {_called(component)}: {stated[2]}"
            mark = f"{moment.at_s:.0f}.{self._last_event}"  # NVML numbers no events
            quoted = (f"event type {received.get('type'):#x}, data {received.get('data')}",)
            found.append(state(self.name, _SOURCE, component, words, moment, quoted, mark, lasting=False))
        return found

    def _remember(self) -> None:
        kept = {}
        for key, gpu in self._known.items():
            c = gpu.component
            if c.uuid:
                kept[key] = {"index": c.name, "serial": c.serial, "pci": c.pci, "base": gpu.base, "links": gpu.links}
        self._notes.note(self.name, {"gpus": kept})


def _called(component: Component) -> str:
    """How people find it: index and address."""
    return (
        f"{component.name} ({component.pci})" if component.pci and component.pci != component.name else component.name
    )


def _recalled(noted: Mapping[str, Any]) -> dict[str, _Gpu]:
    found = {}
    gpus = noted.get("gpus")
    for uuid, row in gpus.items() if isinstance(gpus, dict) else ():
        if isinstance(row, dict):
            component = Component(
                CheckKind.GPU, str(row.get("index")), uuid, str(row.get("serial")), str(row.get("pci"))
            )
            base, links = row.get("base"), row.get("links")
            found[uuid] = _Gpu(
                component, base=base if isinstance(base, dict) else {}, links=links if isinstance(links, list) else []
            )
    return found
