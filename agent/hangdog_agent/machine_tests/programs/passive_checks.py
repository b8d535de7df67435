"""Reads what a machine tells of itself, in two looks of the checks that the agent runs; puts nothing under load and sets nothing.

One line for each check as soon as it has looked, so that one that hangs in the kernel or the driver keeps back no other's.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import Check, CheckResult, CheckVerdict, Moment
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.gpus.gpu import Gpus
from hangdog_agent.checks.kernel_log import Kernel
from hangdog_agent.checks.network import Network
from hangdog_agent.checks.pcie import Pcie
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.machine_tests.programs.report_line import ReportLines

log = logging.getLogger(__name__)

#: The log is read once NVML has told which GPU is at which address, or after so long: then addresses must do.
_NAMES_S = 3.0
#: Things told of one check, the worst first: a flood says no more than these.
_MOST = 200
_WORST = (CheckVerdict.CONVICT, CheckVerdict.RESET, CheckVerdict.SUSPECT, CheckVerdict.TELEMETRY)


class _Recalled(Notes):
    """What the agent remembers, for reading only: it is the agent's."""

    def note(self, name: str, noted: dict[str, Any]) -> None:
        pass


def watch(
    check: Check,
    boot: str,
    apart_s: float,
    tell: Callable[[dict[str, Any]], None],
    between: Callable[[], None] = lambda: None,
) -> None:
    """Looks twice, for an alert may heal by itself; what ended before the second look is left out, unless it is an event."""
    try:
        why = check.supported()
        if why:
            tell({"check": check.name, "why": why})
            return
        first = check.look(Moment(time.monotonic(), 0.0, boot))  # nothing here is dated
        between()
        time.sleep(apart_s)
        second = check.look(Moment(time.monotonic(), 0.0, boot))
    except Exception as error:  # a bug in one check must not cost what the others find
        log.exception("check %s failed", check.name)
        tell({"check": check.name, "failed": f"this is a bug in hangdog: {type(error).__name__}: {error}"})
        return
    tell({"check": check.name, "found": _documents([*(one for one in first if not one.lasting), *second])})


def _documents(results: Iterable[CheckResult]) -> list[dict[str, Any]]:
    once = {result.identity: result for result in results}.values()
    return [
        {
            "kind": result.kind,
            "code": result.code,
            "words": result.words,
            "sort": result.component.sort,
            "name": result.component.name,
            "evidence": list(result.evidence),
        }
        for result in sorted(once, key=lambda one: _WORST.index(one.kind))[:_MOST]
    ]


def main() -> None:
    stated = ReportLines()
    asked = stated.asked
    places = CheckPaths(Path(asked["proc"]), Path(asked["sys"]), Path(asked["kmsg"]))
    # every record that tells something: what is left for a later look would not be read at all
    all_ = CheckSettings().kmsg_records
    settings = CheckSettings(gpu_full_s=0.0, nvml_start_s=asked["nvml_s"], kmsg_relevant=all_)
    boot = places.boot()
    known = _Recalled(Path(asked["known"]) if asked["known"] else None, boot)
    gpus, pcie = Gpus(settings, known), Pcie(places, settings, known)
    # the whole log, whatever the agent has read of it
    kernel = Kernel(places, settings, Notes(None, boot), gpus.at)
    answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
    named = threading.Event()

    def of_gpus() -> None:
        watch(
            gpus,
            boot,
            asked["apart_s"],
            lambda reported: answers.put({**reported, "on the bus": pcie.gpus()}),
            named.set,
        )
        named.set()  # also where there is no NVML

    def of_log() -> None:
        named.wait(_NAMES_S)
        watch(kernel, boot, asked["apart_s"], answers.put)

    turns = (
        of_gpus,
        of_log,
        lambda: watch(pcie, boot, asked["apart_s"], answers.put),
        lambda: watch(Network(places, settings, known), boot, asked["apart_s"], answers.put),
    )
    for turn in turns:
        threading.Thread(target=turn, daemon=True).start()
    for _ in turns:
        stated.part(answers.get())
    gpus.close()
    os._exit(0)


if __name__ == "__main__":
    main()
