"""A look and a log in which watchdogs gave up: the standstill that the log states counts as one that a person states."""

from pathlib import Path

import pytest

from hangdog.offline import open_case, triage
from hangdog_models.verdict import Kind

LAUNCHED = (
    'Process {pid}: python3 train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n'
)
WAITS = (
    "    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    step (train.py:81)\n    <module> (train.py:200)\n"
)
LATE = "    lookup (vocab.py:44)\n    step (train.py:70)\n    <module> (train.py:200)\n"
GAVE_UP = (
    "[rank{rank}]:[E1 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=101, "
    "OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)
LOG = "".join(GAVE_UP.format(rank=rank) for rank in (0, 1, 3))


def bundle(folder: Path, log: str, looks: int = 1) -> Path:
    for look in range(looks):
        at = folder / f"round-{look}"
        at.mkdir(parents=True)
        for rank in range(4):
            (at / f"rank{rank}.txt").write_text(LAUNCHED.format(pid=70 + rank) + (LATE if rank == 2 else WAITS))
    (folder / "job.log").write_text(log)
    return folder


def test_one_look_beside_a_watchdog_that_gave_up_decides(tmp_path: Path) -> None:
    verdict = triage(bundle(tmp_path, LOG))
    assert verdict.kind not in (Kind.SLOW, Kind.NONE) and verdict.suspects[0].ranks == (2,)
    assert "unchanged in the 600 s" in " ".join(reason.text for reason in verdict.because)
    assert any("job.log says that" in note and "600 s" in note for note in verdict.evidence.notes)


def test_what_a_person_states_counts_before_the_log(tmp_path: Path) -> None:
    case = open_case(bundle(tmp_path, LOG), stalled_s=30.0)
    assert case.snapshot.job.stalled_s == 30.0


@pytest.mark.parametrize(("log", "looks"), [(LOG + "iteration 7 | lm loss: 2.1 |\n", 1), (LOG, 2)])
def test_a_job_that_went_on_or_several_looks_state_nothing(tmp_path: Path, log: str, looks: int) -> None:
    assert open_case(bundle(tmp_path, log, looks)).snapshot.job.stalled_s is None
