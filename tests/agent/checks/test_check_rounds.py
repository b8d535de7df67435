"""The round of all checks: intervals, checks that hang, fail or do not apply, what is news and what stands."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import (
    Check,
    CheckKind,
    CheckResult,
    CheckVerdict,
    Component,
    Moment,
    kind_of,
    state,
)
from hangdog_agent.checks.check_scheduler import Checks
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.standard_checks import standard
from hangdog_agent.checks.strikes import Strikes
from hangdog_models.diagnosis.findings.hardware import CONVICTING, weigh
from hangdog_models.findings import Impact
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from support.fakes import targets

GPU = Component(CheckKind.GPU, "0", serial="s-0", pci="0000:1b:00")
#: A tick that waits for its checks however busy the machine is; those that never answer are waited for shortly.
PATIENT, HASTY = CheckSettings(check_grace_s=5.0), CheckSettings(check_grace_s=0.05)


class Scripted:
    """A check that finds what it is told to find."""

    def __init__(self, name: str, every_s: float = 10.0) -> None:
        self.name = name
        self.every_s = every_s
        self.why = ""
        self.asked = 0
        self.looks: list[float] = []
        self.finds: tuple[tuple[str, Impact, bool], ...] = ()
        self.fails = False
        self.closed = False
        self.free = threading.Event()
        self.free.set()

    def supported(self) -> str:
        self.asked += 1
        return self.why

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        self.looks.append(moment.now)
        self.free.wait()
        if self.fails:
            raise RuntimeError("a bug")
        return tuple(
            state(
                self.name,
                "test",
                GPU,
                (code, bearing, code),
                moment,
                lasting=lasting,
                mark="" if lasting else str(moment.now),
            )
            for code, bearing, lasting in self.finds
        )

    def close(self) -> None:
        self.closed = True
        self.free.set()


@pytest.fixture
def one() -> Scripted:
    return Scripted("one")


@pytest.fixture
def two() -> Scripted:
    return Scripted("two", every_s=2.0)


def begun(settings: CheckSettings, *checks: Check) -> Checks:
    return Checks(checks, settings, "boot-1")


def codes(results: tuple[CheckResult, ...]) -> list[str]:
    return [result.code for result in results]


def test_each_check_runs_at_its_own_interval(one: Scripted, two: Scripted) -> None:
    checks = begun(PATIENT, one, two)
    assert checks.due(0.0) == ("one", "two")
    for second in range(21):
        checks.tick(float(second), 0.0)
    assert one.looks == [0.0, 10.0, 20.0]
    assert two.looks == [2.0 * n for n in range(11)]
    assert checks.pause_s(20.5) == 1.5
    assert checks.due(21.0) == ()
    checks.close()
    assert one.closed


def test_a_state_is_news_once_and_stands_while_it_lasts(one: Scripted) -> None:
    checks = begun(PATIENT, one)
    one.finds = (("GPU lost", Impact.CONVICTS, True),)
    assert codes(checks.tick(0.0, 100.0)) == ["GPU lost"]
    assert checks.tick(10.0, 110.0) == ()
    (standing,) = checks.results(10.0)
    assert standing.finding.at_s == 110.0  # as it was seen last: a fault that lasts does not grow old
    one.finds = ()
    assert checks.tick(20.0, 120.0) == checks.results(20.0) == ()
    one.finds = (("GPU lost", Impact.CONVICTS, True),)
    assert codes(checks.tick(30.0, 130.0)) == ["GPU lost"]


def test_a_state_that_becomes_worse_is_news(one: Scripted) -> None:
    checks = begun(PATIENT, one)
    one.finds = (("NVML hangs", Impact.SUSPECTS, True),)
    checks.tick(0.0, 0.0)
    one.finds = (("NVML hangs", Impact.CONVICTS, True),)
    assert [result.kind for result in checks.tick(10.0, 10.0)] == [CheckVerdict.CONVICT]


def test_an_event_is_news_once_and_stands_for_an_hour(one: Scripted) -> None:
    checks = begun(PATIENT, one)
    one.finds = (("Xid 79", Impact.CONVICTS, False),)
    assert codes(checks.tick(0.0, 0.0)) == ["Xid 79"]
    one.finds = ()
    assert checks.tick(10.0, 10.0) == ()
    assert codes(checks.results(3_600.0)) == ["Xid 79"]
    assert checks.results(3_601.0) == ()


def test_a_check_that_hangs_stops_no_other_and_is_evidence_itself(one: Scripted, two: Scripted) -> None:
    one.free.clear()
    two.finds = (("Xid 79", Impact.CONVICTS, True),)
    checks = begun(HASTY, one, two)
    assert codes(checks.tick(0.0, 0.0)) == ["Xid 79"]
    for second in range(2, 60, 2):
        assert checks.tick(float(second), 0.0) == ()
    assert len(two.looks) == 30
    (hangs,) = checks.tick(62.0, 62.0)
    assert (hangs.code, hangs.kind, hangs.check) == ("check hangs", CheckVerdict.SUSPECT, "one")
    assert "no answer for 62 s" in hangs.words
    assert checks.tick(64.0, 64.0) == ()
    assert one.looks == [0.0]  # it is not started a second time
    one.free.set()
    targets.until(lambda: codes(checks.tick(66.0, 66.0)) == [] and "check hangs" not in codes(checks.results(66.0)))
    checks.close()


def test_a_check_that_fails_stops_no_other_and_keeps_what_it_found(
    one: Scripted, two: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    one.finds = (("GPU lost", Impact.CONVICTS, True),)
    checks = begun(PATIENT, one, two)
    checks.tick(0.0, 0.0)
    one.fails = True
    with caplog.at_level(logging.CRITICAL + 1):
        (failed,) = checks.tick(10.0, 10.0)
    assert (failed.code, failed.kind) == ("check failed", CheckVerdict.TELEMETRY)
    assert "RuntimeError('a bug')" in failed.words
    assert codes(checks.results(10.0)) == ["GPU lost", "check failed"]
    one.fails = False
    checks.tick(20.0, 20.0)
    assert codes(checks.results(20.0)) == ["GPU lost"]
    assert len(two.looks) == 3


def test_what_does_not_apply_says_why_once_and_is_asked_again_later(
    one: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    one.why = "there is no GPU"
    checks = begun(PATIENT, one)
    with caplog.at_level(logging.INFO):
        for second in range(0, 700, 10):
            checks.tick(float(second), 0.0)
    (record,) = caplog.records
    assert "check one " in record.getMessage() and record.getMessage().endswith(f": {one.why}")
    assert checks.unsupported() == {"one": "there is no GPU"}
    assert (one.looks, one.asked) == ([], 3)
    one.why = ""
    checks.tick(900.0, 0.0)
    assert one.looks == [900.0]
    assert checks.unsupported() == {}
    one.why = "the driver is gone"  # what applied once and is gone now is evidence: it goes on looking
    checks.tick(910.0, 0.0)
    assert one.looks == [900.0, 910.0]


def test_the_class_follows_from_the_bearing() -> None:
    assert {bearing: kind_of(bearing) for bearing in Impact} == {
        Impact.CONVICTS: CheckVerdict.CONVICT,
        Impact.RESET: CheckVerdict.RESET,
        Impact.SUSPECTS: CheckVerdict.SUSPECT,
        Impact.SLOWS: CheckVerdict.SUSPECT,
        Impact.UNACKNOWLEDGED: CheckVerdict.TELEMETRY,
        Impact.PATH: CheckVerdict.TELEMETRY,
        Impact.PROGRAM: CheckVerdict.TELEMETRY,
        Impact.NUMBERS: CheckVerdict.TELEMETRY,
        Impact.SERVICE: CheckVerdict.TELEMETRY,
        Impact.VICTIM: CheckVerdict.TELEMETRY,
        Impact.TELLS_NOTHING: CheckVerdict.TELEMETRY,
    }
    assert kind_of(Impact.SUSPECTS, "Xid 63") is CheckVerdict.RESET


def test_diagnosis_weighs_a_result(one: Scripted) -> None:
    one.finds = (("GPU lost", Impact.CONVICTS, True),)
    (result,) = begun(PATIENT, one).tick(0.0, 100.0)
    topology = Topology(2, {}, {"host-1": (Rank(0),), "host-2": (Rank(1),)})
    weighed = weigh([result.on("host-2", 0.0)], topology)
    assert {machine: evidence.factor for machine, evidence in weighed.items()} == {"host-2": CONVICTING}


def test_evidence_is_bounded_and_safe_to_show(clock: Iterator[Moment]) -> None:
    evidence = ["a\x1b[2J" + "b" * 10_000] * 100
    result = state("one", "test", GPU, ("code", Impact.SUSPECTS, "w" * 10_000), next(clock), evidence)
    assert len(result.evidence) == 8
    assert all(len(text) <= 300 and text.isprintable() for text in result.evidence)
    assert len(result.words) <= 500


def test_two_strikes_within_the_window_count() -> None:
    strikes = Strikes(2, 300.0)
    assert not strikes.strike("a", 0.0)
    assert not strikes.strike("a", 301.0)
    assert not strikes.strike("b", 302.0)
    assert strikes.strike("a", 600.0)
    assert strikes.counts("a", 601.0)
    assert not strikes.counts("a", 602.0)
    strikes.heal("a")
    assert not strikes.strike("a", 603.0)


def test_notes_hold_for_one_start_of_the_machine(tmp_path: Path) -> None:
    Notes(tmp_path / "notes", "boot-1").note("kernel", {"seq": 7})
    assert Notes(tmp_path / "notes", "boot-1").recall("kernel") == {"seq": 7}
    assert Notes(tmp_path / "notes", "boot-2").recall("kernel") == {}
    assert Notes(None, "boot-1").recall("kernel") == {}
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["kernel.json"]


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[1]", '{"boot": "boot-1"}', '{"boot": "boot-1", "noted": 3}', "[" * 9999]
)
def test_notes_that_are_none_are_forgotten(text: str, tmp_path: Path) -> None:
    (tmp_path / "kernel.json").write_text(text)
    assert Notes(tmp_path, "boot-1").recall("kernel") == {}


def test_notes_that_cannot_be_written_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    notes = Notes(tmp_path / "file" / "notes", "boot-1")
    for seq in range(3):
        notes.note("kernel", {"seq": seq})
    assert len(caplog.records) == 1


def test_all_checks_together_on_this_machine(tmp_path: Path) -> None:
    checks, _ = standard(PATIENT, CheckPaths(state=tmp_path))
    assert checks.due(0.0) == ("kernel", "gpu", "network", "interfaces", "nfs", "tcp", "disk", "memory", "pcie")
    first = checks.tick(1e6, 1.8e9)
    assert not [result for result in first if result.code in ("check failed", "check hangs")]
    assert all(len(why) > 10 for why in checks.unsupported().values())
    checks.close()
