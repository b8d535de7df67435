"""The part of the proof on a GPU that tries the profiler plug-in: what it finds in its dry run, and what it tells of a job that fails."""

import re
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


def test_a_job_that_does_not_begin_is_told_with_what_it_complained_of(stand: Stand, tmp_path: Path) -> None:
    folder = stand.folder("broken").resolve()
    job = profiler.Job(stand, folder, tmp_path / "no-such-plugin.so")
    try:
        job.begin()
        begun = job.wait("ready", 5)
    finally:
        job.end()
    assert not begun
    assert any(re.search(r"\b2 before 'ready'", each) for each in job.wrong)
    assert "no-such-plugin.so" in job.figures()["rank 0 complains"]
    assert all(rank.process.poll() is not None for rank in job.ranks)
