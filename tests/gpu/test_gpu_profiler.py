"""The part of the proof on a GPU that tries the profiler plug-in: what it finds in its dry run, and what it tells of a job that fails."""

import shutil
import sys
from pathlib import Path

import pytest

from gpu.families import profiler
from gpu.kit import Stand

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler"),
]


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(Path(sys.executable), tmp_path / "out", tmp_path / "scratch", dry=True)


def test_a_dry_run_names_the_rank_that_was_stopped_and_counts_what_was_done(stand: Stand) -> None:
    (part,) = profiler.parts(stand)
    measured = part.measure(stand)
    figures = measured.figures
    assert measured.wrong == []
    assert figures["rank 0 awaits data of"] == [1]
    assert figures["behind by counts"].startswith("rank 1 has 1 fewer")
    assert figures["stuck on rank 0"][0].startswith("AllReduce running for ")
    (waiting,), (hung,) = (figures[f"rank {rank} while the device of rank 1 hangs"] for rank in (0, 1))
    assert waiting.startswith("AllReduce running for ") and "awaits the sender's data" in waiting
    assert hung.startswith("AllReduce launched for ") and "0 kernels, awaits the GPU, awaits the sender's data" in hung
    assert figures["rank 0: collectives and p2p made"] == figures["rank 0: counted, finished, left out"][:2]
    assert (figures["rank 0 ended with"], figures["rank 1 ended with"]) == (0, 0)


def test_a_job_that_does_not_begin_is_told_with_what_it_complained_of(stand: Stand, tmp_path: Path) -> None:
    folder = stand.folder("broken").resolve()
    job = profiler.Job(stand, folder, tmp_path / "no-such-plugin.so")
    try:
        job.begin()
        begun = job.wait("ready", 5)
    finally:
        job.end()
    assert not begun
    assert any("ended with 2 before 'ready'" in each for each in job.wrong)
    assert "no-such-plugin.so" in job.figures()["rank 0 complains"]
    assert all(rank.process.poll() is not None for rank in job.ranks)
