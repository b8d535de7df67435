"""The ladder's part of the proof: what speaks against a sound device is wrong, and so is a fault that goes unseen."""

from typing import Any

import pytest

from gpu.families import ladder, ladder_faults
from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind
from hangdog_agent.machine_tests.level_runner import Climbed, LevelsReport, to_json

PASSED = LevelResult(1, "memory", LevelOutcome.PASS, "it kept every pattern", measures={"tested_bytes": 8.0})
FAILED = LevelResult(
    1, "gemm", LevelOutcome.FAIL, "they do not add up", (MachineConviction(PartKind.DEVICE, ("cuda:0",)),)
)
OPEN = LevelResult(1, "device", LevelOutcome.INCONCLUSIVE, "it did not answer")
FAULT = ladder_faults.InjectedFault("product", "a bit flips", 1, "gemm")
HANGS = ladder_faults.InjectedFault("endless product", "it waits", 1, "device", LevelOutcome.INCONCLUSIVE)


def report(*results: LevelResult, skipped: str = "") -> dict[str, Any]:
    return to_json(LevelsReport((Climbed(1, "one device", results, skipped),)), "", {})


def test_a_sound_device_that_passes_is_right() -> None:
    assert ladder._against(report(PASSED)) == []
    told = ladder._told(report(PASSED))
    assert told["outcomes"] == {"memory: pass": 1} and told["rates"] == {"memory tested_bytes": 8.0}


@pytest.mark.parametrize(
    ("results", "skipped", "said"),
    [
        ((PASSED, FAILED), "", "FALSE CONVICTION"),
        ((PASSED, OPEN), "", "left open"),
        ((), "torch sees none of the GPUs", "torch sees none of the GPUs"),
    ],
)
def test_what_does_not_pass_on_a_sound_device_is_wrong(
    results: tuple[LevelResult, ...], skipped: str, said: str
) -> None:
    (wrong,) = ladder._against(report(*results, skipped=skipped))
    assert said in wrong


@pytest.mark.parametrize(
    ("fault", "result", "said"),
    [
        (FAULT, FAILED, ""),
        (FAULT, PASSED, "was not found"),
        (FAULT, LevelResult(1, "gemm", LevelOutcome.FAIL, ""), "convicts nobody"),
        (HANGS, OPEN, ""),
        (HANGS, PASSED, "was not found"),
        (FAULT, LevelResult(1, "containment", LevelOutcome.INCONCLUSIVE, "cannot be killed"), "cannot be killed"),
    ],
)
def test_a_fault_that_is_not_found_as_it_ought_to_be_is_wrong(
    fault: ladder_faults.InjectedFault, result: LevelResult, said: str
) -> None:
    met = [result] if (result.test, result.outcome) == (fault.test, fault.outcome) else []
    words = ladder_faults._wrong(fault, [result], met, "")
    assert said in words and bool(said) == bool(words)


def test_a_kernel_that_never_ends_convicts_nobody_and_it_is_wrong_where_it_does() -> None:
    assert "proves nothing" in ladder_faults._wrong(HANGS, [OPEN, FAILED], [OPEN], "")
