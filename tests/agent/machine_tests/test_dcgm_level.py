"""DCGM's own diagnosis through a fake `dcgmi`: three generations of its answer, garbage, silence, death; what convicts, what not."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind
from hangdog_agent.machine_tests.levels.dcgm import Dcgm
from hangdog_agent.machine_tests.settings import LevelSettings
from support.fakes.ladder import play

GPU1 = (MachineConviction(PartKind.DEVICE, ("GPU 1",)),)


def document(generation: int, status: str, warning: str = "", number: int = 0, severity: int = 0) -> dict[str, Any]:
    """What `dcgmi diag -j` of a generation prints for a memory test of GPUs 0 and 1, of which 1 came out as `status`."""
    numbered: list[Any] = (
        [{"warning": warning, "error_id": number, "error_category": 7, "error_severity": severity}] if warning else []
    )
    key = "DCGM Diagnostic"
    more: dict[str, Any] = {}
    sound: dict[str, Any] = {"status": "Pass", "warnings": []}
    bad: dict[str, Any] = {"status": status, "warnings": warning if generation == 3 else numbered}
    if generation == 3:
        results = [{**sound, "gpu_ids": "0", "status": "PASS"}, {**bad, "gpu_ids": "1", "status": status.upper()}]
        key = "DCGM GPU Diagnostic"
    elif generation == 31:
        results = [{**sound, "gpu_id": "0", "status": "PASS"}, {**bad, "gpu_id": "1", "status": status.upper()}]
        more = {"version": "3.3.8", "GPU Device Serials": {"1": "1650"}}
    else:
        one = {"entity_group": "GPU", "entity_group_id": 1}
        results = [{**one, **sound, "entity_id": 0}, {**one, **bad, "entity_id": 1}]
        more = {"metadata": {"version": "4.6.0"}}
    return {
        key: {"test_categories": [{"category": "Hardware", "tests": [{"name": "Memory", "results": results}]}]},
        **more,
    }


def level(folder: Path, script: str) -> Dcgm:
    program = folder / "dcgmi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Dcgm(replace(LevelSettings(), dcgm_level=3), {"PATH": f"{folder}:/usr/bin:/bin", "FOLDER": str(folder)})


def told(folder: Path, said: object, status: int = 0) -> tuple[LevelResult, ...]:
    (folder / "said").write_text(said if isinstance(said, str) else json.dumps(said))
    return play(level(folder, f'echo "$*" >"$FOLDER/asked"; cat "$FOLDER/said"; exit {status}'))


@pytest.mark.parametrize("generation", [3, 31, 4])
def test_a_clean_run_passes_and_says_what_ran(generation: int, tmp_path: Path) -> None:
    (result,) = told(tmp_path, document(generation, "Pass"))
    assert (result.outcome, result.message, result.convicts) == (LevelOutcome.PASS, "passed: Memory", ())
    assert (tmp_path / "asked").read_text() == "diag -r 3 -j\n"


@pytest.mark.parametrize("generation", [31, 4])
def test_a_failure_with_a_reason_to_isolate_convicts_the_gpu(generation: int, tmp_path: Path) -> None:
    (result,) = told(tmp_path, document(generation, "Fail", "Faulty memory on GPU 1", 52, 2), 205)
    assert (result.outcome, result.convicts) == (LevelOutcome.FAIL, GPU1)


def test_of_the_oldest_generation_the_words_decide(tmp_path: Path) -> None:
    (result,) = told(tmp_path, document(3, "Fail", "row remap failure on GPU 1"), 226)
    assert (result.outcome, result.convicts) == (LevelOutcome.FAIL, GPU1)


@pytest.mark.parametrize(
    ("warning", "number", "severity"),
    [
        ("EUD could not start", 89, 4),
        ("EUD could not start", 94, 4),
        ("persistence mode is off", 29, 5),
        ("a row remap is pending on GPU 1", 84, 6),
        ("low bandwidth", 30, 4),
        ("", 0, 0),
    ],
)
def test_what_could_not_run_wants_a_reset_or_another_look_convicts_nobody(
    warning: str, number: int, severity: int, tmp_path: Path
) -> None:
    for generation in (3, 31, 4):
        (result,) = told(tmp_path, document(generation, "Fail", warning, number, severity), 226)
        assert (result.outcome, result.convicts) == (LevelOutcome.INCONCLUSIVE, ()), (generation, result)


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ("", 226, "dcgmi ended with status 226 (it could not run)"),
        ("", 217, "(another diagnosis is running)"),
        ("Error: unable to connect to host engine", 226, "DCGM gave no diagnosis"),
        ('{"DCGM Diagnostic": {"test_categories": [{"category"', 205, "(it wants a GPU isolated)"),
        ('{"DCGM Diagnostic": {"test_categories": []}}', 0, "none of DCGM's tests ran"),
        (document(4, "Skip"), 205, "names nothing, and yet dcgmi ended with status 205 (it wants a GPU isolated)"),
        ("[" * 100_000, 0, "DCGM gave no diagnosis"),
        ("\x00\xff" * 1000, 0, "DCGM gave no diagnosis"),
        ('{"DCGM Diagnostic": 7}', 0, "DCGM gave no diagnosis"),
    ],
)
def test_garbage_and_silence_are_told_and_convict_nobody(said: object, status: int, words: str, tmp_path: Path) -> None:
    (result,) = told(tmp_path, said, status)
    assert (result.outcome, result.convicts) == (LevelOutcome.INCONCLUSIVE, ())
    assert words in result.message


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("sleep 600", r"did not answer within \d s, in state S"),
        ("kill -STOP $$", r"did not answer within \d s, in state T"),
        ("kill -SEGV $$", "was ended by SIGSEGV"),
        ("exec yes 0123456789012345678901234567890123456789", "more than 4194304 bytes of output"),
    ],
    ids=["hangs", "is stopped", "dies", "floods"],
)
def test_a_diagnosis_that_hangs_dies_or_floods_is_contained(script: str, words: str, tmp_path: Path) -> None:
    began = time.monotonic()
    results = play(level(tmp_path, script), 1.0 if "answer" in words else 30.0)
    assert time.monotonic() - began < 15
    assert re.search(words, results[0].message)
    assert {one.outcome for one in results} == {LevelOutcome.INCONCLUSIVE}


def test_without_dcgm_there_is_nothing_to_run(tmp_path: Path) -> None:
    assert "dcgmi" in Dcgm(LevelSettings(), {"PATH": str(tmp_path)}).supported()
