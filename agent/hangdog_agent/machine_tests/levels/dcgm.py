"""Level 1, NVIDIA's own diagnosis where it is installed: `dcgmi diag`, whose failure to run is no failure of a GPU."""

import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind, contained
from hangdog_agent.machine_tests.members import Ended, GroupMember, MemberEnd
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import cleaned
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.reading.hardware import dcgm
from hangdog_models.reading.json_document import read_json

#: What its exit statuses mean (derived from the code of DCGM 4.6): none of them convicts without a document that says why.
_STATUSES = {
    205: "it wants a GPU isolated",
    226: "it could not run",
    217: "another diagnosis is running",
    204: "a part of it is missing",
}
#: The document of 16 GPUs has some hundred kilobytes.
_MOST_BYTES = 4 << 20


@dataclass(slots=True)
class Dcgm:
    """The level, beside the tests of our own."""

    settings: LevelSettings
    environ: Mapping[str, str] = field(default_factory=lambda: cleaned(os.environ))

    number = 1
    name = "DCGM"

    @property
    def deadline_s(self) -> float:
        return self.settings.dcgm_s

    def supported(self) -> str:
        return "" if self._program() else "dcgmi is not installed"

    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        command = (self._program(), "diag", "-r", str(self.settings.dcgm_level), "-j")
        ran = run([GroupMember("dcgmi", command, self.environ)], deadline_s, _MOST_BYTES, stop=stop)
        results = tuple(judged(ran.members[0]))
        return (*results, *contained(1, ran))

    def _program(self) -> str:
        return shutil.which("dcgmi", path=self.environ.get("PATH", os.defpath)) or ""


def judged(ended: Ended) -> Iterator[LevelResult]:
    """What it found. Only a failure with a known reason to isolate a GPU convicts; everything else asks for another look."""
    status = _STATUSES.get(ended.status or 0, "") if ended.how is MemberEnd.ITSELF else ""
    base = LevelResult(1, "DCGM", LevelOutcome.INCONCLUSIVE, "", seconds=ended.seconds, repetitions=1)
    try:
        document = read_json(ended.stdout)
        findings = dcgm.read(document)
        ran = dcgm.passed(document)
    except UnreadableEvidence as error:
        words = f"DCGM gave no diagnosis: {ended.words}" + (f" ({status})" if status else "")
        yield replace(base, message=words, evidence=(str(error),))
        return
    for finding in findings:
        one = replace(base, message=finding.what, evidence=(finding.code,))
        if finding.impact is Impact.CONVICTS:
            device = MachineConviction(PartKind.DEVICE, (f"GPU {finding.device}",))
            whom = device if finding.device.isdecimal() else MachineConviction(PartKind.MACHINE, ())
            one = replace(one, outcome=LevelOutcome.FAIL, convicts=(whom,))
        elif finding.impact is Impact.RESET:
            one = replace(one, message=f"{finding.what}; reset it and test it again")
        yield one
    if findings:
        return
    if not ended.well:
        yield replace(base, message=f"DCGM names nothing, and yet {ended.words}" + (f" ({status})" if status else ""))
    elif not ran:
        yield replace(base, message="none of DCGM's tests ran")
    else:
        yield replace(base, outcome=LevelOutcome.PASS, message=f"passed: {', '.join(ran)}")
