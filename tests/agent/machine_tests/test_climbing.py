"""The ladder itself: order, budget, what all levels say together, and the report; with levels that are played."""

import json
import threading
import time
from dataclasses import dataclass, field

import pytest

from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind
from hangdog_agent.machine_tests.level_runner import LadderOutcome, climb, golden, to_json

PASSED = LevelResult(1, "t", LevelOutcome.PASS, "fine", digests={"a": "1"}, key="k")
OPEN = LevelResult(1, "t", LevelOutcome.INCONCLUSIVE, "it \x1b[31m did not answer\n", evidence=("x" * 10_000,) * 100)
DEVICE = LevelResult(1, "t", LevelOutcome.FAIL, "broken", (MachineConviction(PartKind.DEVICE, ("cuda:3",)),))
LINK = LevelResult(3, "t", LevelOutcome.FAIL, "slow", (MachineConviction(PartKind.LINK, ("a", "b")),))


@dataclass
class Played:
    """Takes as long as it may, or no time at all."""

    results: tuple[LevelResult, ...] = (PASSED,)
    number: int = 1
    why: str = ""
    takes_all: bool = False
    name: str = "played"
    deadline_s: float = 30.0
    given_s: list[float] = field(default_factory=list)

    def supported(self) -> str:
        return self.why

    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        self.given_s.append(deadline_s)
        return self.results


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ((PASSED,), LadderOutcome.NOT_CONVICTED),
        ((PASSED, OPEN), LadderOutcome.OPEN),
        ((OPEN, LINK), LadderOutcome.FAILED),
        ((OPEN, LINK, DEVICE), LadderOutcome.CONVICTED),
        ((), LadderOutcome.OPEN),
    ],
)
def test_what_all_levels_say_together(results: tuple[LevelResult, ...], verdict: LadderOutcome) -> None:
    assert climb([Played(results)], 60.0, threading.Event()).verdict is verdict


def test_a_test_that_did_not_fail_cannot_convict() -> None:
    with pytest.raises(ValueError, match="convicts nobody"):
        LevelResult(1, "t", LevelOutcome.INCONCLUSIVE, "", (MachineConviction(PartKind.MACHINE, ()),))


class Broken(Played):
    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        raise ZeroDivisionError("no devices")


def test_a_bug_in_one_level_costs_no_other_and_convicts_nobody() -> None:
    diagnosis = climb([Broken(), Played((DEVICE,), number=2)], 60.0, threading.Event())
    assert [one.outcome for one in diagnosis.results] == [LevelOutcome.INCONCLUSIVE, LevelOutcome.FAIL]
    assert diagnosis.results[0].message.endswith("bug in hangdog: ZeroDivisionError: no devices")
    assert climb([Broken()], 60.0, threading.Event()).verdict is LadderOutcome.OPEN


def test_levels_go_in_order_each_within_its_deadline_and_the_budget() -> None:
    late, early = Played(number=4, deadline_s=500.0), Played(number=1)
    told: list[int] = []
    climbed = climb([late, early], 60.0, threading.Event(), lambda level: told.append(level.number))
    assert told == [1, 4] and [level.number for level in climbed.levels] == told
    assert early.given_s == [30.0] and 59 < late.given_s[0] <= 60


def test_what_the_budget_does_not_reach_is_open_and_what_has_nothing_to_test_is_not() -> None:
    assert climb([Played()], 1.0, threading.Event()).verdict is LadderOutcome.OPEN
    skipped = climb([Played(), Played(why="one device only")], 60.0, threading.Event())
    assert skipped.verdict is LadderOutcome.NOT_CONVICTED and skipped.levels[1].skipped == "one device only"
    assert climb([Played(why="no torch")], 60.0, threading.Event()).verdict is LadderOutcome.OPEN, "nothing was tested"


def test_what_a_machine_tells_by_itself_is_no_test_of_it() -> None:
    passive = Played((LevelResult(0, "reading", LevelOutcome.PASS, "fine"),), number=0)
    assert climb([passive], 60.0, threading.Event()).verdict is LadderOutcome.NOT_CONVICTED, (
        "nothing else was asked for"
    )
    untested = climb([passive, Played(why="no torch")], 60.0, threading.Event())
    assert untested.verdict is LadderOutcome.OPEN
    assert climb([Played()], 60.0, threading.Event(), before=untested.levels).verdict is LadderOutcome.NOT_CONVICTED


def test_what_was_climbed_before_may_end_it() -> None:
    before = climb([Played((DEVICE,), number=0)], 60.0, threading.Event()).levels
    second = Played()
    diagnosis = climb([second], 60.0, threading.Event(), further=False, before=before)
    assert (diagnosis.verdict, second.given_s) == (LadderOutcome.CONVICTED, [])
    assert [level.number for level in diagnosis.levels] == [0, 1]


def test_the_first_conviction_may_be_the_last_level() -> None:
    second = Played(number=2)
    assert climb([Played((DEVICE,)), second], 60.0, threading.Event(), further=False).verdict is LadderOutcome.CONVICTED
    assert second.given_s == []
    climb([Played((LINK,)), second], 60.0, threading.Event(), further=False)
    assert len(second.given_s) == 1, "a link is no reason to end"


def test_once_stopped_no_further_level_begins() -> None:
    stop = threading.Event()
    stop.set()
    began = time.monotonic()
    assert climb([Played()], 60.0, stop).levels[0].skipped == "stopped" and time.monotonic() - began < 10


class Kept:
    """Notes when it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def record(self) -> None:
        self.calls.append("record")

    def settle(self) -> tuple[str, ...]:
        self.calls.append("settle")
        return ("a test changed the clocks; restored",)


class Interrupted(Played):
    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        raise KeyboardInterrupt


def test_settings_are_put_back_whatever_happens() -> None:
    kept = Kept()
    assert climb([Played()], 60.0, threading.Event(), backup=kept).remarks == ("a test changed the clocks; restored",)
    with pytest.raises(KeyboardInterrupt):
        climb([Interrupted()], 60.0, threading.Event(), backup=kept)
    assert kept.calls == ["record", "settle"] * 2


def test_the_report_is_bounded_safe_to_show_and_says_all() -> None:
    document = to_json(climb([Played((PASSED, OPEN, DEVICE))], 60.0, threading.Event()), "gpu-a17", {"torch": "2.13"})
    passed, open_, failed = document["levels"][0]["results"]
    assert (document["schema"], document["verdict"], document["machine"]) == (
        "hangdog.diagnosis/1",
        "convicted",
        "gpu-a17",
    )
    assert open_["says"] == "it \\x1b[31m did not answer" and len(json.dumps(open_)) < 20_000
    assert failed["convicts"] == [{"sort": "device", "names": ["cuda:3"]}]
    assert golden([document]) == {"k": {"a": "1"}} == {passed["key"]: passed["digests"]}


def test_stored_answers_that_contradict_each_other_are_not_believed() -> None:
    def report(mark: str, outcome: str = "pass", key: str = "k") -> dict[str, object]:
        return {"levels": [{"results": [{"outcome": outcome, "key": key, "digests": {"a": mark}}]}]}

    assert golden([report("1"), report("1"), report("2", key="other")]) == {"k": {"a": "1"}, "other": {"a": "2"}}
    assert golden([report("1"), report("2")]) == {}
    assert golden([report("1", "fail"), {"levels": [7]}, {"levels": "x"}, {}]) == {}
