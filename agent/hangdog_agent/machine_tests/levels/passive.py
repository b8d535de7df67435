"""Level 0, passive: what NVML, the kernel log, PCIe and the network cards tell by themselves, by the agent's own checks and policies."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import CheckKind as Part
from hangdog_agent.checks.check_result import CheckVerdict
from hangdog_agent.checks.gpus.gpu import NOT_ASKED
from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind, contained
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Engine, Report, cleaned, read
from hangdog_agent.machine_tests.untrusted_values import tables, text, texts, whole

#: What each check reads, for people, by its name.
_READ = {"gpu": "GPUs", "kernel": "kernel log", "pcie": "PCIe links", "network": "network cards"}
#: How a part of the machine is called in a conviction; one of the machine itself has no name.
_CALLED: Mapping[str, str] = {
    Part.GPU: "GPU", Part.SWITCH: "NVSwitch", Part.PORT: "port", Part.SLOT: "PCIe device",
    Part.MOUNT: "mount", Part.DISK: "disk", Part.MEMORY: "memory",
}  # fmt: skip


@dataclass(slots=True)
class Passive:
    """The level. `known` is the folder where the agent of this machine remembers what was here, empty: there is none.

    The class of a check's result decides: what convicts fails, what is suspect or wants a reset is open, the rest is told.
    """

    settings: LevelSettings
    environ: Mapping[str, str] = field(default_factory=lambda: cleaned(os.environ))
    known: str = ""
    places: CheckPaths = field(default_factory=CheckPaths)

    number = 0
    name = "passive reading"

    @property
    def deadline_s(self) -> float:
        return self.settings.passive_s

    def supported(self) -> str:
        return ""

    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        """In a child, for a look into a sick driver may never return; whatever the other checks told by then counts."""
        asked = {
            "proc": str(self.places.proc),
            "sys": str(self.places.sys),
            "kmsg": str(self.places.kmsg),
            "known": self.known,
            "nvml_s": self.settings.passive_nvml_s,
            "apart_s": self.settings.passive_apart_s,
        }
        # by our own Python, which has the bindings; that of the trainers need not
        member = Engine(sys.executable, self.environ).member("passive_checks", asked, "the reading")
        ran = run([member], deadline_s, stop=stop)
        results = tuple(replace(one, seconds=ran.seconds) for one in judged(read(ran.members[0])))
        return (*results, *contained(0, ran))


def judged(report: Report) -> Iterator[LevelResult]:
    """One result for each thing that speaks against the machine or could not be read, and one for all that was read well."""
    answers = {text(part, "check"): part for part in report.parts}
    well, absent, reported = [], [], []
    for check, read_ in _READ.items():
        part = answers.get(check)
        if part is None:
            yield LevelResult(0, read_, LevelOutcome.INCONCLUSIVE, f"{read_}: no answer; {report.ended.words}")
        elif why := text(part, "failed"):
            yield LevelResult(0, read_, LevelOutcome.INCONCLUSIVE, f"{read_}: {why}")
        elif why := text(part, "why"):
            if there := _there(check, part):
                yield LevelResult(0, read_, LevelOutcome.INCONCLUSIVE, f"{read_}: {there}{why}")
            else:
                absent.append(f"{read_} ({why})")
        else:
            rows = tables(part, "found")
            against = [row for row in rows if _against(row)]
            reported += [text(row, "words") for row in rows if not _against(row)]
            yield from (_result(read_, row) for row in against)
            if not against:
                well.append(read_)
    if well:
        words = f"nothing speaks against this machine in its {', '.join(well)}"
        words += f"; not here: {', '.join(absent)}" if absent else ""
        yield LevelResult(0, "reading", LevelOutcome.PASS, words, evidence=tuple(reported), repetitions=1)


def _there(check: str, part: Mapping[str, Any]) -> str:
    """Why something ought to be there that could not be read; empty when it may well be absent."""
    if check == "kernel":  # every machine has one
        return "not read: "
    on_bus = whole(part, "on the bus")
    return f"{on_bus} are on the PCIe bus, and " if on_bus else ""


def _against(row: Mapping[str, Any]) -> bool:
    # a check that could not ask tells so as telemetry, since for an agent it is no news of the machine
    return text(row, "kind") != CheckVerdict.TELEMETRY or text(row, "code") == NOT_ASKED


def _result(read_: str, row: Mapping[str, Any]) -> LevelResult:
    kind, words = text(row, "kind"), text(row, "words")
    one = LevelResult(0, read_, LevelOutcome.INCONCLUSIVE, words, evidence=texts(row, "evidence"), repetitions=1)
    if kind == CheckVerdict.CONVICT:
        return replace(one, outcome=LevelOutcome.FAIL, convicts=(_whom(row),))
    if kind == CheckVerdict.RESET:  # no job runs now: what could wait for the next stop is due
        return replace(one, message=f"{words}; reset it and test it again")
    return one


def _whom(row: Mapping[str, Any]) -> MachineConviction:
    called, name = _CALLED.get(text(row, "sort")), text(row, "name")
    return (
        MachineConviction(PartKind.DEVICE, (f"{called} {name}",))
        if called and name
        else MachineConviction(PartKind.MACHINE, ())
    )
