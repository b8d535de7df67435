"""Whether a machine has accelerators is known by what NVML answers, however late it does."""

import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.discover import find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.procfs import Proc
from hangdog_agent.stalls import monitor
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.rules.ruleset import packaged
from support.fakes import targets


def test_a_machine_of_which_nvml_tells_late_has_gpus_from_then_on(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_DEVICES", ())
    power: dict[str, tuple[float, float]] = {}

    def answered() -> Mapping[str, tuple[float, float]]:
        return power

    tools = replace(tools, stop=threading.Event())
    watch = StallMonitor(tools, packaged(), StallSettings(), answered)
    with targets.running(targets.WAIT, environ={"RANK": "0", "WORLD_SIZE": "1", "HANGDOG_JOB": "late"}) as process:
        members = [one for one in find(ProcessTable(Proc()).take()) if one.process.pid == process.pid]
        watch.tick(members)
        (job,) = watch._jobs.values()
        assert not job.gpus
        power["0000:01:00"] = (0.5, 1.0)
        watch.tick(members)
        assert job.gpus
    watch.close()
