"""Level 4 on the CPU with the real torch: one bit in one weight or gradient is found, with its device, and agreement is told."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind
from hangdog_agent.machine_tests.levels.alignment import Alignment
from hangdog_models.planning.alignment import Digests
from support.fakes import ladder
from support.fakes.ladder import ON_CPU, failed, play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(ladder.PATIENCE_S)]

SMALL = replace(ladder.SMALL, alignment_repetitions=6, alignment_width_cpu=32)


def level(fault: str = "", victim: str = "", processes: int = 1, golden: dict[str, Digests] | None = None) -> Alignment:
    return Alignment(ladder.engine(fault, victim), ON_CPU, SMALL, processes, golden or {})


def convicting(*names: str) -> tuple[MachineConviction, ...]:
    return (MachineConviction(PartKind.DEVICE, names),)


@pytest.fixture(scope="module")
def eight() -> tuple[LevelResult, ...]:
    """Eight processes stand for eight devices: each alone, then all as one job of tensor 2 x pipeline 2 x data 2."""
    return play(level(processes=8))


def golden(results: tuple[LevelResult, ...]) -> dict[str, Digests]:
    return {one.key: one.digests for one in results if one.digests}


def test_sound_devices_agree_with_themselves_with_each_other_and_as_a_job(eight: tuple[LevelResult, ...]) -> None:
    assert {one.outcome for one in eight} == {LevelOutcome.PASS}, [
        one for one in eight if one.outcome is not LevelOutcome.PASS
    ]
    aligned, job = eight[-2:]
    assert "cpu:6, cpu:7 " in aligned.message and aligned.message.endswith("same bits")
    assert len([item for item in aligned.digests if item.startswith("moe gradient of blocks.")]) == 4 * 9
    assert job.test == "job of eight" and "tp 2 pp 2 dp 2" in job.key
    assert len({item.partition(" ")[2].partition(" ")[0] for item in job.digests}) == 8, "each rank's own"


def test_one_bit_of_one_weight_convicts_its_device_among_three() -> None:
    results = play(level("weight", '"name": "cpu:1"', processes=3))
    assert failed(results) == {"alignment": convicting("cpu:1")}
    (wrong,) = [one for one in results if one.outcome is LevelOutcome.FAIL]
    assert "than cpu:0, cpu:2" in wrong.message and "second run" in wrong.message


def test_one_bit_of_one_gradient_is_found_by_a_stored_answer(eight: tuple[LevelResult, ...]) -> None:
    results = play(level("gradient", "minigpt", golden=golden(eight)))
    assert failed(results) == {"alignment": convicting("cpu:0")}
    (wrong,) = [one for one in results if one.outcome is LevelOutcome.FAIL]
    assert "stored answer: 2 tensors" in wrong.message, "one of either model: updated weights hide it"
    assert not failed(play(level(golden=golden(eight))))


def test_a_gradient_that_is_wrong_now_and_then_disagrees_with_itself() -> None:
    results = play(level("rare gradient", "minigpt"))
    assert failed(results) == {"dense step": convicting("cpu:0"), "moe step": convicting("cpu:0")}


def test_bits_of_other_work_are_not_compared(tmp_path: Path) -> None:
    """Another version of a program computes other bits on sound devices."""
    key = "from hangdog_agent.machine_tests.programs.device import key; import sys; print(key('cpu', sys.argv[1]))"
    program, told = tmp_path / "program.py", []
    for text in ("a", "b", "a"):
        program.write_text(text)
        told.append(subprocess.run([sys.executable, "-c", key, str(program)], capture_output=True, check=True).stdout)
    assert told[0] == told[2] != told[1]
