"""Level 2, inside the machine: every pair of devices sends known data to each other, timed and checked."""

import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind, contained
from hangdog_agent.machine_tests.levels.exchange import GB, Arrived, arrived, damaged, gathered, rates, slow
from hangdog_agent.machine_tests.members import Ran
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Engine, Probe, Report, read
from hangdog_agent.machine_tests.untrusted_values import tables
from hangdog_models.planning.pairs import Pair, blame


@dataclass(slots=True)
class Inside:
    """The level. Whatever fails here is this machine's; a device is named where most of its pairs fail."""

    engine: Engine
    probe: Probe
    settings: LevelSettings
    processes: int = 1

    number = 2
    name = "inside the machine"

    @property
    def deadline_s(self) -> float:
        return self.settings.inside_s

    def supported(self) -> str:
        if not self.probe.why and len(self.probe.devices(self.processes)) < 2:
            return "there is one device only, and it takes two to exchange data"
        return self.probe.why

    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        """All pairs, disjoint ones at once, in several passes: slow is a pair that was slow in each."""
        devices = self.probe.devices(self.processes)
        ran, reports = self._exchange(devices, deadline_s, stop)
        results = list(contained(2, ran))
        if silent := _silent(reports):
            words = f"{', '.join(silent)} did not answer: {reports[silent[0]].words}"
            evidence = tuple(report.words for report in reports.values() if not report.found)
            return (
                *results,
                LevelResult(2, "pairs", LevelOutcome.INCONCLUSIVE, words, evidence=evidence, seconds=ran.seconds),
            )
        everything = _all(reports, devices)
        measured = rates(everything)
        drop = self.settings.inside_drop if self.probe.accelerators else self.settings.pair_drop_cpu
        late = slow(measured, drop, self.settings.inside_floor_gb_per_s)
        among = gathered({name: report.found for name, report in reports.items()}, devices)
        wrong = damaged((*everything, *among))
        often = self.settings.pair_repetitions
        slowest = min(measured.values(), default=0.0) / GB
        measures = {"slowest_gb_per_s": slowest}
        for test, bad, good in (
            ("integrity", wrong, "everything that was sent arrived as it was"),
            ("bandwidth", late, f"the slowest of {len(measured)} pairs reaches {slowest:.3g} GB/s"),
        ):
            one = LevelResult(
                2, test, LevelOutcome.PASS, good, measures=measures, repetitions=often, seconds=ran.seconds
            )
            results.append(_convicting(one, list(measured), bad) if bad else one)
        return tuple(results)

    def _exchange(
        self, devices: Sequence[str], deadline_s: float, stop: threading.Event
    ) -> tuple[Ran, Mapping[str, Report]]:
        s = self.settings
        with tempfile.TemporaryDirectory(prefix="hangdog-pairs-") as folder:
            members = []
            for rank, device in enumerate(devices):
                on_cpu = device.startswith("cpu")
                asked = {
                    "name": device,
                    "device": "cpu" if on_cpu else device,
                    "threads": 1,
                    "rank": rank,
                    "world": len(devices),
                    "meet": f"file://{Path(folder) / 'meet'}",
                    "schedule": "all",
                    "bytes": s.pair_bytes_cpu if on_cpu else s.pair_bytes,
                    "repetitions": s.pair_repetitions,
                    "passes": s.pair_passes,
                    "until": time.monotonic() + 2 * deadline_s,  # here the warden sees who is behind
                }
                members.append(self.engine.member("pairs", asked, device, {"GLOO_SOCKET_IFNAME": "lo"}))
            ran = run(members, deadline_s, stop=stop)
        return ran, {ended.name: read(ended) for ended in ran.members}


def _all(reports: Mapping[str, Report], devices: Sequence[str]) -> list[Arrived]:
    return [one for report in reports.values() for one in arrived(tables(report.found, "pairs"), devices)]


def _silent(reports: Mapping[str, Report]) -> list[str]:
    """Who keeps the others waiting: who was stopped or died, else those at the earliest step; empty when all came to an end."""
    open_ = {name: report for name, report in reports.items() if not report.found}
    if not open_:
        return []
    dead = [name for name, report in open_.items() if report.ended.stopped or (report.ended.status or 0) < 0]
    least = min(report.step for report in open_.values())
    return dead or [name for name, report in open_.items() if report.step == least]


def _convicting(passed: LevelResult, pairs: Sequence[Pair], bad: Mapping[Pair, str]) -> LevelResult:
    ends, links = blame(pairs, bad)
    convicted = [MachineConviction(PartKind.DEVICE, (end,)) for end in ends]
    if links:  # a link inside the machine is a part of the machine, whichever end is broken
        convicted += [
            *(MachineConviction(PartKind.LINK, link) for link in links),
            MachineConviction(PartKind.MACHINE, ()),
        ]
    who = [*ends, *(f"the link between {low} and {high}" for low, high in links)]
    how = "data arrives wrong" if passed.test == "integrity" else "transfers are slow"
    words = f"{how}: {', '.join(who)}"
    return replace(passed, outcome=LevelOutcome.FAIL, message=words, convicts=tuple(convicted), evidence=_of(bad))


def _of(bad: Mapping[Pair, str]) -> tuple[str, ...]:
    return tuple(f"{low} with {high}: {why}" for (low, high), why in bad.items())
