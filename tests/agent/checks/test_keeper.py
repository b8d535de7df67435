"""The checks in a thread of their own: what holds is said, and leaving ends them."""

import threading

from hangdog_agent.checks.check_result import CheckKind, CheckResult, Component, Moment, state
from hangdog_agent.checks.check_scheduler import Checks
from hangdog_agent.checks.checks_thread import ChecksThread
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.findings import Impact


class Broken:
    """A played check that always finds one thing."""

    name = "played"
    every_s = 0.05

    def __init__(self) -> None:
        self.looked = threading.Semaphore(0)
        self.closed = False

    def supported(self) -> str:
        return ""

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        self.looked.release()
        return (
            state(
                self.name, "played", Component(CheckKind.GPU, "3"), ("GPU lost", Impact.CONVICTS, "it is gone"), moment
            ),
        )

    def close(self) -> None:
        self.closed = True


def test_what_holds_is_said_on_this_machine_until_the_end() -> None:
    check = Broken()
    with ChecksThread(Checks((check,), CheckSettings(), "boot"), "gpu-a17", lambda: 1e9) as keeper:
        for _ in range(3):
            assert check.looked.acquire(timeout=10)
        (finding,) = keeper.findings()
        assert (finding.machine, finding.code, finding.impact, finding.at_s) == (
            "gpu-a17",
            "GPU lost",
            Impact.CONVICTS,
            1e9,
        )
    assert check.closed
    while check.looked.acquire(blocking=False):
        pass
    assert not check.looked.acquire(timeout=0.2)


def test_an_age_does_not_follow_the_date() -> None:
    """The machine's date is set back by an hour behind an event: it stays as old as it is."""
    dates = iter([1e9])
    check = Once()
    with ChecksThread(Checks((check,), CheckSettings(), "boot"), "gpu-a17", lambda: next(dates, 1e9 - 3600)) as keeper:
        for _ in range(3):
            assert check.looked.acquire(timeout=10)
        first, second = keeper.findings()[0], keeper.findings()[0]
    assert first.at_s == second.at_s == 1e9
    assert first.age_s is not None and second.age_s is not None and 0 < first.age_s <= second.age_s < 60


class Once(Broken):
    """One that finds an event in its first look, and nothing after that."""

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        self.looked.release()
        said = "link flap", Impact.SUSPECTS, "it went and came"
        first = moment.at_s == 1e9
        return (
            (state(self.name, "played", Component(CheckKind.PORT, "p"), said, moment, lasting=False),) if first else ()
        )
