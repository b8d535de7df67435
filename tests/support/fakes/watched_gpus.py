"""Fake GPUs, watched by the true check, for as long as a test lasts."""

from collections.abc import Callable, Iterator

from hangdog_agent.checks.check_result import CheckResult, CheckVerdict, Moment
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.gpus.gpu import Gpus
from hangdog_agent.checks.gpus.nvml_client import Sweeper
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.findings import Impact
from support.fakes.fake_gpus import FakeGpus

#: Every sweep asks for all; a call that blocks is given up soon, though not before Python has started.
SETTINGS = CheckSettings(gpu_full_s=0.0, nvml_start_s=10.0, nvml_answer_s=0.5, brake_sightings=2)

Watch = Callable[..., "Watched"]


class Watched:
    """The check on fake GPUs, looked at again and again."""

    def __init__(self, gpus: FakeGpus, clock: Iterator[Moment], notes: Notes, settings: CheckSettings) -> None:
        self.sweeper = Sweeper(settings, environ=gpus.environ)
        self.check = Gpus(settings, notes, self.sweeper)
        self._clock = clock

    def look(self) -> tuple[CheckResult, ...]:
        return self.check.look(next(self._clock))

    def one(self) -> CheckResult:
        found = self.look()
        assert len(found) == 1, [result.words for result in found]
        return found[0]


def said(result: CheckResult) -> tuple[str, CheckVerdict, Impact]:
    return result.code, result.kind, result.finding.impact
