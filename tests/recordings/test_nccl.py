"""Real NCCL jobs that were hung on a GPU on purpose are judged as they should be; docs/gpu.md tells what was done to each.

`python bench/gpu --record` recorded them on one NVIDIA H200 with torch 2.11 and NCCL 2.28.9: two to eight ranks, each of which
stands for a machine, and rank 1 is the one that is struck. Paths, serial numbers and older entries of flight records are left out.
"""

from pathlib import Path

import pytest

import hangdog
from hangdog_models.verdict import Kind, Verdict

RECORDINGS = Path(__file__).parent / "nccl"
VICTIM = ("node-1",)


def judged(name: str) -> Verdict:
    return hangdog.triage(RECORDINGS / name)


@pytest.mark.parametrize(
    "name",
    [
        "process-stopped",
        "process-stopped-of-eight",
        "device-hangs",
        "device-hangs-timed",
        "device-hangs-profiler-ring",
    ],
)
def test_the_machine_of_who_is_surely_stuck_is_evicted(name: str) -> None:
    verdict = judged(name)
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, VICTIM)
    assert verdict.confidence > 0.9


@pytest.mark.parametrize("name", ["device-hangs-ras-alone", "loader-waits-for-a-file"])
def test_where_the_cause_is_open_the_rank_is_the_first_suspect_and_nobody_is_evicted(name: str) -> None:
    verdict = judged(name)
    assert (verdict.suspects[0].machines, verdict.evict.machines) == (VICTIM, ())
    assert verdict.culprit is not None and verdict.culprit.probability > 0.9


@pytest.mark.parametrize("name", ["collective-skipped", "collective-skipped-ras-alone", "collective-of-another-size"])
def test_a_collective_that_one_rank_calls_otherwise_is_the_program_s_fault(name: str) -> None:
    verdict = judged(name)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.SOFTWARE, (1,), ())


def test_who_was_killed_is_named_and_nobody_is_evicted() -> None:
    verdict = judged("process-killed")
    assert verdict.culprit is not None
    assert (verdict.culprit.machines, verdict.evict.machines) == (VICTIM, ())


def test_every_recording_is_judged_here() -> None:
    source = Path(__file__).read_text()
    names = [folder.name for folder in RECORDINGS.iterdir()]
    assert names and not [name for name in names if f'"{name}"' not in source]
