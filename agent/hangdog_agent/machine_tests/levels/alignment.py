"""Level 4, bit-wise alignment: every device computes the same small training step, and its tensors must have the same bits."""

import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind, contained
from hangdog_agent.machine_tests.levels.peer_comparison import beside, doubted
from hangdog_agent.machine_tests.members import GroupMember, Ran
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Engine, Probe, Report, read
from hangdog_agent.machine_tests.untrusted_values import table, tables, text, whole
from hangdog_models.planning.alignment import Digests, GoldenAnswer

_KINDS = ("dense", "moe")
#: Eight devices train as one small job, too: tensor (or expert), pipeline and data parallel by two (ByteRobust).
_LAYOUT = {"tp": 2, "pp": 2, "dp": 2}
_RANKS = 8


@dataclass(slots=True)
class Alignment:
    """The level; `golden` are digests stored under exactly equal keys, from machines that were right."""

    engine: Engine
    probe: Probe
    settings: LevelSettings
    processes: int = 1
    golden: Mapping[str, Digests] = field(default_factory=dict)

    number = 4
    name = "bit-wise alignment"

    @property
    def deadline_s(self) -> float:
        return self.settings.alignment_s

    def supported(self) -> str:
        return self.probe.why

    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        """Each device alone, compared with itself and with the others; eight of them also together, for other machines."""
        devices = self.probe.devices(self.processes)
        ran = run([self._member(device, None) for device in devices], deadline_s, linger_s=deadline_s, stop=stop)
        reports = {ended.name: read(ended) for ended in ran.members}
        alone = {name: _alone(name, reports[name], ran.seconds) for name in devices}
        again = _doubted(alone, _answers(reports), self.golden)
        left = deadline_s - ran.seconds
        seconds: dict[str, Report] = {}
        if again and not stop.is_set() and left > 0:
            second = run([self._member(device, None) for device in again], left, linger_s=left, stop=stop)
            seconds = {ended.name: read(ended) for ended in second.members}
            left -= second.seconds
        results = _confirmed(alone, {name: _alone(name, report) for name, report in seconds.items()})
        results += beside(4, _answers(reports), _answers(seconds), self.golden, self.settings.alignment_repetitions)
        if len(devices) >= _RANKS and not again and not stop.is_set() and left > 0:
            results += self._together(devices[:_RANKS], left, stop)
        return (*results, *contained(4, ran))

    def _together(self, devices: Sequence[str], deadline_s: float, stop: threading.Event) -> list[LevelResult]:
        """As one job. A wrong bit spreads along its pipeline, so that this convicts the machine, not a device of it."""
        with tempfile.TemporaryDirectory(prefix="hangdog-align-") as folder:
            meet = (Path(folder) / "meet").as_uri()
            layout = {**_LAYOUT, "world": _RANKS, "meet": meet, "patience_s": deadline_s}
            ran = run([self._member(d, {**layout, "rank": at}) for at, d in enumerate(devices)], deadline_s, stop=stop)
        reports = {ended.name: read(ended) for ended in ran.members}
        results = [one for name, report in reports.items() for one in _alone(name, report)]
        if not all(report.found for report in reports.values()):
            return [replace(_unfinished(ran, reports), seconds=ran.seconds)]
        if any(one.outcome is LevelOutcome.FAIL for one in results):
            convicted = (MachineConviction(PartKind.MACHINE, ()),)
            odd = tuple(one.message for one in results if one.outcome is LevelOutcome.FAIL)
            words = "eight devices as one job do not compute the same bits twice"
            return [LevelResult(4, "job of eight", LevelOutcome.FAIL, words, convicted, odd, seconds=ran.seconds)]
        digests = {
            f"rank {at} {item}": mark
            for at, answer in enumerate(_answers(reports))
            for item, mark in answer.digests.items()
        }
        one = GoldenAnswer("this machine", text(reports[devices[0]].found, "key"), digests)
        often = self.settings.alignment_repetitions
        return [replace(each, test="job of eight") for each in beside(4, [one], [], self.golden, often)]

    def _member(self, device: str, layout: Mapping[str, Any] | None) -> GroupMember:
        on_cpu = device.startswith("cpu")
        s = self.settings
        asked = {
            "name": device,
            "device": "cpu" if on_cpu else device,
            "threads": self.probe.threads(),
            "kinds": list(_KINDS),
            "type": "float32" if on_cpu else "bfloat16",
            "repetitions": s.alignment_repetitions,
            "width": s.alignment_width_cpu if on_cpu else s.alignment_width,
            "layers": 4,
            "batch": 2,
            "tokens": 32 if on_cpu else 512,
            "layout": layout,
        }
        return self.engine.member("minigpt", asked, device)


def _alone(device: str, report: Report, seconds: float = 0.0) -> list[LevelResult]:
    """Whether a device agrees with itself: no peer is needed to tell a fault that comes and goes."""
    if not report.found:
        return [LevelResult(4, "step", LevelOutcome.INCONCLUSIVE, report.words, seconds=seconds)]
    results = []
    for part in tables(report.found, "parts"):
        kind, often = text(part, "kind"), whole(part, "repetitions")
        odd = often - whole(part, "times")
        if not odd:
            words = f"{device}: {often} steps of the {kind} model have the same bits"
            results.append(LevelResult(4, f"{kind} step", LevelOutcome.PASS, words, repetitions=often, seconds=seconds))
            continue
        names = ", ".join(str(name) for name in part.get("odd", [])[:4])
        words = f"{device}: {odd} of {often} steps of the {kind} model have other bits than the rest"
        outcome = (
            LevelOutcome.FAIL if odd > 1 else LevelOutcome.INCONCLUSIVE
        )  # two are needed, or one and another proof
        convicted = (MachineConviction(PartKind.DEVICE, (device,)),) if odd > 1 else ()
        results.append(
            LevelResult(4, f"{kind} step", outcome, words, convicted, (names,), repetitions=often, seconds=seconds)
        )
    return results


def _odd_once(one: LevelResult) -> bool:
    """Whether a device disagreed with itself, too seldom to be convicted of it."""
    return one.outcome is LevelOutcome.INCONCLUSIVE and bool(one.evidence)


def _doubted(
    alone: Mapping[str, Sequence[LevelResult]], answers: Sequence[GoldenAnswer], golden: Mapping[str, Digests]
) -> tuple[str, ...]:
    """The devices that a second run must confirm."""
    odd = doubted(answers, golden) | {device for device, results in alone.items() if any(map(_odd_once, results))}
    return tuple(answer.name for answer in answers if answer.name in odd)


def _confirmed(
    alone: Mapping[str, Sequence[LevelResult]], again: Mapping[str, Sequence[LevelResult]]
) -> list[LevelResult]:
    """A device that disagreed with itself once is convicted when it does so in a second run, too."""
    confirmed = []
    for device, results in alone.items():
        twice = {other.test for other in again.get(device, ()) if other.evidence}
        for one in results:
            if _odd_once(one) and one.test in twice:
                convicted = (MachineConviction(PartKind.DEVICE, (device,)),)
                words = f"{one.message}, and again in a second run"
                one = replace(one, outcome=LevelOutcome.FAIL, convicts=convicted, message=words)
            confirmed.append(one)
    return confirmed


def _answers(reports: Mapping[str, Report]) -> list[GoldenAnswer]:
    """What each device computed most of the time."""
    found = []
    for name, report in reports.items():
        digests = {
            f"{text(part, 'kind')} {item}": str(mark)[:64]
            for part in tables(report.found, "parts")
            for item, mark in table(part, "items").items()
        }
        if digests:
            found.append(GoldenAnswer(name, text(report.found, "key"), digests))
    return found


def _unfinished(ran: Ran, reports: Mapping[str, Report]) -> LevelResult:
    reported = tuple(report.words for report in reports.values() if not report.found)
    return LevelResult(
        4, "job of eight", LevelOutcome.INCONCLUSIVE, f"eight devices as one job: {reported[0]}", evidence=reported
    )
