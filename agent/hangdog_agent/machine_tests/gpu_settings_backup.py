"""Remembers the settings of the GPUs before tests, and sees to it that they are the same after: a test may change them.

NVIDIA's extended field test once lifted a frequency lock, and the machine was slower than its like from then on (ByteRobust).
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.torch_engine import Engine, Report, cleaned, read
from hangdog_agent.machine_tests.untrusted_values import table
from hangdog_models.reading.printable import printable

#: NVML answers within a second on a machine in order; starting it without persistence mode takes some a GPU.
_DEADLINE_S = 30.0


@dataclass(slots=True)
class GpuSettingsBackup:
    """The settings as they were when it was made; `why` says why they are not known."""

    environ: Mapping[str, str] = field(default_factory=lambda: cleaned(os.environ))
    before: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    def record(self) -> None:
        """Takes the settings of now; nothing is remembered where there is no NVML."""
        report = self._ask({})
        self.before = table(report.found, "gpus")
        if not report.found:
            self.why = f"the settings of the GPUs are not known: {report.words}"

    def settle(self) -> tuple[str, ...]:
        """Compares, sets back what differs, and compares again; answers what was changed, and what still is."""
        if not self.before:
            return (self.why,) if self.why else ()
        changed = self._differing(self._ask({}))
        if not changed:
            return ()
        report = self._ask({"wanted": self.before})
        left = self._differing(report)
        failed = report.found.get("failed")
        why = [printable(str(one), 200) for one in failed[:16]] if isinstance(failed, list) else []
        reported = [
            f"a test changed {what}; {'it is NOT restored' if what in left else 'restored'}" for what in changed
        ]
        return (*reported, *why)

    def _ask(self, asked: Mapping[str, Any]) -> Report:
        # by our own Python, which has the bindings; that of the trainers need not
        member = Engine(sys.executable, self.environ).member("gpu_settings", asked, "NVML")
        return read(run([member], _DEADLINE_S).members[0])

    def _differing(self, report: Report) -> dict[str, None]:
        """What is otherwise than it was, in words without values, which may differ from one look to the next."""
        now = table(report.found, "gpus")
        found: dict[str, None] = {}
        for uuid in self.before:
            was, is_ = (table(table(gpus, uuid), "settings") for gpus in (self.before, now))
            index = table(self.before, uuid).get("index")
            if uuid not in now:
                found[f"GPU {index}, which does not answer any more"] = None
                continue
            found |= {f"{name} of GPU {index}": None for name, value in was.items() if is_.get(name) != value}
        return found
