"""Starts programs that need torch under a Python that has it, and reads what they said."""

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hangdog_agent
from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.pcie import Pcie
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.machine_tests.members import Ended, GroupMember
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.untrusted_values import whole
from hangdog_models.reading.printable import printable

#: Runs a program of ours under any Python: our package is found, but nothing else that lies beside it, nor in the folder
#: where the diagnosis was started.
_START = """
import sys
sys.path[0] = sys.argv.pop(1)
import hangdog_agent.machine_tests.programs
del sys.path[0]
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
_OURS = str(Path(next(iter(hangdog_agent.__path__))).parent)
#: What decides which bits a kernel yields, and must be set before CUDA starts (NVIDIA: reproducibility of cuBLAS, NCCL).
STEADY = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NVIDIA_TF32_OVERRIDE": "0",
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    "NCCL_MIN_NCHANNELS": "4",
    "NCCL_MAX_NCHANNELS": "4",
    "PYTHONHASHSEED": "0",
}
#: More threads than these add nothing to the checks of one device.
_MOST_THREADS = 8
#: What a launcher told its own ranks, and tokens of ours: no test of a machine has any use for them.
_DROPPED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "HANGDOG_TOKEN",
            "HANGDOG_TOKEN_FILE")  # fmt: skip
_DROPPED_BEGIN = ("TORCHELASTIC_", "GROUP_", "ROLE_")


@dataclass(frozen=True, slots=True)
class Report:
    """What a program said: `found` is empty where it did not come to its end, and `at` names the last step it
    began, `step` counts them. `parts` are results that hold even then."""

    ended: Ended
    found: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""
    step: int = 0
    parts: tuple[Mapping[str, Any], ...] = ()

    @property
    def words(self) -> str:
        """How it ended without a result, for people."""
        return self.ended.words + (f" (at: {self.at})" if self.at else "")


@dataclass(frozen=True, slots=True)
class Engine:
    """A Python that has torch, and the environment that tests are run in."""

    interpreter: str = sys.executable
    environ: Mapping[str, str] = field(default_factory=lambda: cleaned(os.environ))

    def member(
        self, program: str, asked: Mapping[str, Any], name: str, more: Mapping[str, str] | None = None
    ) -> GroupMember:
        """A process that runs `program` with `asked` as its parameters; `name` is what it is called in results."""
        module = f"hangdog_agent.machine_tests.programs.{program}"
        command = (self.interpreter, "-c", _START, _OURS, module, json.dumps(asked))
        return GroupMember(name, command, {**self.environ, **STEADY, **(more or {})})

    def probe(
        self, deadline_s: float, stop: threading.Event | None = None, places: CheckPaths | None = None
    ) -> "Probe":
        """Which torch there is, and which devices; never raises. Where GPUs stand idle the CPU is not tested in their place."""
        ran = run([self.member("list_devices", {}, "the search for devices")], deadline_s, stop=stop)
        report = read(ran.members[0])
        if not report.found:
            return Probe(why=f"{self.interpreter} cannot run torch: {report.words}")
        found = whole(report.found, "accelerators")
        idle = 0 if found else Pcie(places or CheckPaths(), CheckSettings(), Notes(None, "")).gpus()
        why = (
            f"torch sees none of the {idle} NVIDIA GPUs on the PCIe bus: driver, container or --python" if idle else ""
        )
        return Probe(str(report.found.get("torch")), found, why)


@dataclass(frozen=True, slots=True)
class Probe:
    """What can be tested here; `why` says why nothing can be."""

    torch: str = ""
    accelerators: int = 0
    why: str = ""

    def devices(self, processes: int) -> tuple[str, ...]:
        """The accelerators; where there are none, so many processes on the CPU stand for them."""
        if self.accelerators:
            return tuple(f"cuda:{index}" for index in range(self.accelerators))
        return tuple(f"cpu:{index}" for index in range(processes))

    def threads(self) -> int:
        """Of the host, for what each accelerator's process checks there; where processes stand for devices, one each.

        No bit of an accelerator depends on them.
        """
        return min(_MOST_THREADS, max(1, (os.cpu_count() or 1) // self.accelerators)) if self.accelerators else 1


def read(ended: Ended) -> Report:
    """The report in what a program said. A sick machine may write anything: lines that are none of ours are left out."""
    found: Mapping[str, Any] = {}
    at, step = "", 0
    parts: list[Mapping[str, Any]] = []
    for line in ended.stdout.splitlines():
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict) and isinstance(document.get("found"), dict):
            found = document["found"]
        elif isinstance(document, dict) and isinstance(document.get("part"), dict):
            parts.append(document["part"])
        elif isinstance(document, dict) and isinstance(document.get("at"), str):
            at, step = printable(document["at"], 160), step + 1
    return Report(ended, found if ended.well else {}, at, step, tuple(parts))


def cleaned(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without what a job's launcher left in it, and without our own secrets."""
    return {
        name: value for name, value in environ.items() if name not in _DROPPED and not name.startswith(_DROPPED_BEGIN)
    }
