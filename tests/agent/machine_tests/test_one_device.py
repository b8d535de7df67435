"""Level 1 on the CPU with the real torch: a broken product, memory, or pace is found, and what cannot run convicts nobody."""

import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind
from hangdog_agent.machine_tests.levels.single_device import OneDevice
from support.fakes import ladder
from support.fakes.ladder import ON_CPU, SMALL, failed, play

CPU0 = (MachineConviction(PartKind.DEVICE, ("cpu:0",)),)
CPU1 = (MachineConviction(PartKind.DEVICE, ("cpu:1",)),)
#: How often a device is timed beside itself until the fifth that it lacks shows.
TRIES = 6

pytestmark = [pytest.mark.slow, pytest.mark.timeout(ladder.PATIENCE_S)]


def level(fault: str = "", victim: str = "one_device", cohort: tuple[float, ...] = (), processes: int = 1) -> OneDevice:
    return OneDevice(ladder.engine(fault, victim), ON_CPU, SMALL, processes, cohort)


@pytest.fixture(scope="module")
def clean() -> tuple[LevelResult, ...]:
    return play(level())


def test_a_sound_device_passes_every_test(clean: tuple[LevelResult, ...]) -> None:
    assert {one.outcome for one in clean} == {LevelOutcome.PASS}
    assert [one.test for one in clean] == ["memory", "gemm", "gemm", "gemm", "gemm", "gemm", "alignment", "speed"]
    (aligned,) = [one for one in clean if one.digests]
    assert "torch" in aligned.key and "work " in aligned.key and len(set(aligned.digests.values())) == 5


#: Prints what devices are given to multiply, and the weights of the small model.
GIVEN = """
import torch
from hangdog_agent.machine_tests.programs.device import digest
from hangdog_agent.machine_tests.programs.layout import ParallelLayout
from hangdog_agent.machine_tests.programs.minigpt import GptStage, weights
from hangdog_agent.machine_tests.programs.one_device import operands
for regime in ("exact", "ones", "ordinary", "small", "large"):
    print(*map(digest, operands(regime, torch.float32, 64)))
layout = ParallelLayout(None, "cpu")
print(*(digest(made) for made in weights(GptStage("dense", 32, 1, layout), layout).values()))
"""


def test_what_devices_are_given_does_not_depend_on_the_host() -> None:
    given = {
        capability: subprocess.run(
            (sys.executable, "-c", GIVEN),
            env=os.environ | {"ATEN_CPU_CAPABILITY": capability},
            capture_output=True,
            check=True,
        ).stdout
        for capability in ("default", "avx2")
    }
    assert given["default"] == given["avx2"] and given["avx2"].count(b"\n") == 6


def test_a_product_with_one_wrong_bit_convicts_the_device_and_only_it() -> None:
    results = play(level("product", '"name": "cpu:1"', processes=2))
    assert failed(results) == {"gemm": CPU1}
    wrong = [one for one in results if one.outcome is LevelOutcome.FAIL]
    assert ["exact" in one.message for one in wrong] == [True], (
        "of sums that are rounded so small an error cannot be told"
    )
    assert re.search(r": 1 wrong rows.* 0$", wrong[0].evidence[1])


def test_a_product_that_is_always_wrong_within_rounding_is_found_by_a_stored_answer(
    clean: tuple[LevelResult, ...],
) -> None:
    stored = {one.key: one.digests for one in clean if one.digests}
    results = play(replace(level("faint product"), golden=stored))
    assert failed(results) == {"alignment": CPU0}
    (odd,) = [one for one in results if one.outcome is LevelOutcome.FAIL]
    assert len(results) == len(clean), "no test of its own sees it"
    assert "stored answer: 3 tensors" in odd.message and "second run" in odd.message


def test_a_product_that_is_wrong_now_and_then_disagrees_with_itself() -> None:
    results = play(level("rare product"))
    assert failed(results) == {"gemm": CPU0}
    assert all("2 ways" in one.message for one in results if one.outcome is LevelOutcome.FAIL)


def test_a_cell_that_does_not_keep_a_bit_is_named() -> None:
    results = play(level("memory"))
    assert failed(results) == {"memory": CPU0}
    assert "word 999: wrote 0x0000000000000000, read 0x0000010000000000" in results[0].evidence


def test_a_device_a_fifth_slower_than_its_like_is_convicted() -> None:
    """Its like being this very device a moment before; a virtual core's own pace may change by as much from run to run."""
    tried = []
    for _ in range(TRIES):
        before = rate()
        slow = level("slow", cohort=(before, before, before))
        slow.settings = replace(SMALL, speed_drop_cpu=0.1)
        results = play(slow)
        tried.append((before, results[-1].measures["rate_tflops"]))
        if failed(results):
            break
    assert failed(results) == {"speed": CPU0}, tried
    assert "the 3 like it" in results[-1].message


def rate() -> float:
    """How fast the sound device is now, in TFLOP/s."""
    return play(level())[-1].measures["rate_tflops"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("stopped", "did not answer within 14 s, in state T"),
        ("dies", "was ended by SIGSEGV"),
    ],
)
def test_one_that_does_not_come_to_its_end_is_told_and_convicts_nobody(fault: str, said: str) -> None:
    began = time.monotonic()
    results = play(level(fault, '"name": "cpu:1"', processes=2), 14.0)
    assert time.monotonic() - began < 20
    assert not failed(results)
    open_ = [one.message for one in results if one.outcome is LevelOutcome.INCONCLUSIVE]
    assert any(said in words and words.startswith("cpu:1") for words in open_), open_


def test_a_python_without_torch_is_no_fault_of_the_machine() -> None:
    probe = replace(ladder.engine(), interpreter="/usr/bin/false").probe(10.0)
    assert "cannot run torch" in OneDevice(ladder.engine(), probe, SMALL).supported()
