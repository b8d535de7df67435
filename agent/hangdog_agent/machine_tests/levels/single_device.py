"""Level 1, one device: memory patterns, products that are checked and must not change, and how fast they are."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind, contained
from hangdog_agent.machine_tests.levels.peer_comparison import beside, doubted
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Engine, Probe, Report, read
from hangdog_agent.machine_tests.untrusted_values import number, numbers, table, tables, text, whole
from hangdog_models.counts import counted
from hangdog_models.planning.alignment import Digests, GoldenAnswer
from hangdog_models.planning.pace import too_slow

_TYPES = ("bfloat16", "float32", "float16")
#: Half precision on a CPU is emulated, slow, and computed by the same units as the rest.
_TYPES_CPU = ("float32",)
#: Values that real faults depend on: exact sums, all ones, ordinary, and the ends of what training meets.
_REGIMES = ("exact", "ones", "ordinary", "small", "large")
_TESTS = ("memory", "gemm", "speed")
#: To show a signed word as the bits it is.
_WORD = (1 << 64) - 1


@dataclass(slots=True)
class OneDevice:
    """The level; `cohort_tflops` are rates of devices of the same kind on other machines, `golden` the digests of their products."""

    engine: Engine
    probe: Probe
    settings: LevelSettings
    processes: int = 1
    cohort_tflops: Sequence[float] = ()
    golden: Mapping[str, Digests] = field(default_factory=dict)

    number = 1
    name = "one device"

    @property
    def deadline_s(self) -> float:
        return self.settings.device_s

    def supported(self) -> str:
        return self.probe.why

    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        """All devices at once: each is tested by a process of its own. One that seems slow is timed again, alone."""
        began = time.monotonic()
        devices = self.probe.devices(self.processes)
        members = [self.engine.member("one_device", self._asked(device, _TESTS), device) for device in devices]
        ran = run(members, deadline_s, linger_s=deadline_s, stop=stop)
        reports = [read(ended) for ended in ran.members]
        results = [replace(one, seconds=ran.seconds) for report in reports for one in judged(report)]
        answers = [answer for report in reports if (answer := _answer(report))]
        seconds: list[GoldenAnswer] = []
        if again := doubted(answers, self.golden):
            left = deadline_s - (time.monotonic() - began)
            seconds = self._products(sorted(again), left, stop) if left > 0 and not stop.is_set() else []
        results += beside(1, answers, seconds, self.golden, self.settings.gemm_repetitions)
        rates = {report.ended.name: rate for report in reports if (rate := self._rate(report))}
        for device, rate in rates.items():
            why = self._slow(device, rate, rates)
            left = deadline_s - (time.monotonic() - began)
            if why and not stop.is_set() and left > self.settings.start_s / 2:
                member = self.engine.member("one_device", self._asked(device, ("speed",)), device)
                rate = max(rate, self._rate(read(run([member], left, stop=stop).members[0])))
                why = self._slow(device, rate, rates)
            results.append(self._speed(device, rate, why))
        return (*results, *contained(1, ran))

    def _products(self, devices: Sequence[str], deadline_s: float, stop: threading.Event) -> list[GoldenAnswer]:
        """A second run of those whose bits differ: one alone convicts nobody."""
        members = [self.engine.member("one_device", self._asked(device, ("gemm",)), device) for device in devices]
        ran = run(members, deadline_s, linger_s=deadline_s, stop=stop)
        return [answer for ended in ran.members if (answer := _answer(read(ended)))]

    def _asked(self, device: str, tests: Sequence[str]) -> Mapping[str, Any]:
        on_cpu = device.startswith("cpu")
        s = self.settings
        size = s.gemm_size_cpu if on_cpu else s.gemm_size
        return {
            "name": device,
            "device": "cpu" if on_cpu else device,
            "threads": self.probe.threads(),
            "tests": list(tests),
            "memory_bytes": s.memory_bytes if on_cpu else 0,
            "memory_share": s.memory_share,
            "memory_passes": s.memory_passes,
            "size": size,
            "types": list(_TYPES_CPU if on_cpu else _TYPES),
            "regimes": list(_REGIMES),
            "repetitions": s.gemm_repetitions,
            "speed_repetitions": s.speed_repetitions,
        }

    def _rate(self, report: Report) -> float:
        """TFLOP/s; 0 where it was not measured. A CPU is shared, so there the fastest of the products counts."""
        speed = table(report.found, "speed")
        seconds = [one for one in numbers(speed, "seconds") if one > 0]
        if not seconds:
            return 0.0
        typical = min(seconds) if report.ended.name.startswith("cpu") else median(seconds)
        return number(speed, "operations") / typical / 1e12

    def _slow(self, device: str, rate: float, rates: Mapping[str, float]) -> str:
        drop = self.settings.speed_drop_cpu if device.startswith("cpu") else self.settings.speed_drop
        others = [*(each for name, each in rates.items() if name != device), *self.cohort_tflops]
        return too_slow(rate, others, self.settings.speed_floor_tflops or None, drop)

    def _speed(self, device: str, rate: float, why: str) -> LevelResult:
        measured = f"{device} reaches {rate:.4g} TFLOP/s"
        measures, often = {"rate_tflops": rate}, self.settings.speed_repetitions
        if not why:
            return LevelResult(1, "speed", LevelOutcome.PASS, measured, measures=measures, repetitions=often)
        convicted = (MachineConviction(PartKind.DEVICE, (device,)),)
        return LevelResult(
            1, "speed", LevelOutcome.FAIL, f"{measured}, {why}", convicted, measures=measures, repetitions=often
        )


def judged(report: Report) -> Iterator[LevelResult]:
    """What memory and products of one device say; a device whose program did not come to its end is not convicted by that."""
    device = report.ended.name
    if not report.found:
        yield LevelResult(1, "device", LevelOutcome.INCONCLUSIVE, report.words, evidence=report.ended.last(4))
        return
    memory = table(report.found, "memory")
    if memory:
        yield _memory(device, memory)
    for gemm in tables(report.found, "gemm"):
        yield _gemm(device, gemm)


def _answer(report: Report) -> GoldenAnswer | None:
    """What a device computed, all of which passed: who is convicted by itself needs no others to compare it with."""
    gemms = tables(report.found, "gemm")
    device = report.ended.name
    if not gemms or any(_gemm(device, gemm).outcome is not LevelOutcome.PASS for gemm in gemms):
        return None
    names = (f"{text(gemm, 'type')} {text(gemm, 'regime')}" for gemm in gemms)
    digests = (text(tables(gemm, "digests")[0], "digest") for gemm in gemms)
    return GoldenAnswer(device, text(report.found, "key"), dict(zip(names, digests, strict=True)))


def _memory(device: str, memory: Mapping[str, Any]) -> LevelResult:
    count, passes = whole(memory, "count"), whole(memory, "passes")
    measures = {"tested_bytes": number(memory, "bytes")}
    if not count:
        words = f"{device}: {measures['tested_bytes'] / 2**20:.0f} MiB of memory kept every pattern"
        return LevelResult(1, "memory", LevelOutcome.PASS, words, measures=measures, repetitions=passes)
    evidence = (
        f"word {whole(one, 'word')}: wrote {whole(one, 'wanted') & _WORD:#018x}, read {whole(one, 'was') & _WORD:#018x}"
        for one in tables(memory, "wrong")
    )
    words = f"{device}: {count} cells of memory did not keep what was written"
    return _convicting("memory", device, words, evidence, measures, passes)


def _gemm(device: str, gemm: Mapping[str, Any]) -> LevelResult:
    name = f"products of {text(gemm, 'type')}, {text(gemm, 'regime')} operands"
    repetitions = whole(gemm, "repetitions")
    wrong, kinds, digests = tables(gemm, "wrong"), whole(gemm, "kinds"), tables(gemm, "digests")
    evidence = [f"digest {text(one, 'digest')} {counted(whole(one, 'times'), 'time')}" for one in digests]
    evidence += [
        f"digest {text(one, 'digest')}: {whole(one, 'count')} wrong rows, the first {_listed(numbers(one, 'rows'))}"
        for one in wrong
    ]
    if gemm.get("host wavers") is True:
        words = f"{device}: the host finds other rows wrong each time it checks the same {name}"
        convicted = (MachineConviction(PartKind.MACHINE, ()),)
        return LevelResult(1, "gemm", LevelOutcome.FAIL, words, convicted, tuple(evidence), repetitions=repetitions)
    odd = repetitions - whole(digests[0], "times") if digests else 0
    if odd == 1 and not wrong:  # two are needed, or one and another proof
        words = f"{device}: one of {repetitions} {name} came out otherwise than the rest"
        return LevelResult(
            1, "gemm", LevelOutcome.INCONCLUSIVE, words, evidence=tuple(evidence), repetitions=repetitions
        )
    if wrong or kinds > 1:
        how = "do not add up" if kinds <= 1 else f"came out in {kinds} ways from the same operands"
        return _convicting("gemm", device, f"{device}: {name} {how}", evidence, {}, repetitions)
    if not digests:
        return LevelResult(1, "gemm", LevelOutcome.INCONCLUSIVE, f"{device}: {name} were not computed")
    words = f"{device}: {name} add up, and {repetitions} of them are equal"
    return LevelResult(1, "gemm", LevelOutcome.PASS, words, repetitions=repetitions)


def _convicting(
    test: str, device: str, words: str, evidence: Iterable[str], measures: Mapping[str, float], repetitions: int
) -> LevelResult:
    convicted = (MachineConviction(PartKind.DEVICE, (device,)),)
    return LevelResult(1, test, LevelOutcome.FAIL, words, convicted, tuple(evidence), measures, repetitions=repetitions)


def _listed(rows: Sequence[float]) -> str:
    return ", ".join(f"{row:.0f}" for row in rows)
