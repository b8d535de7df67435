"""Which tests run when: the fast ones always, slow ones with `-m slow`, and those that take hours only where they are named."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest
def test_fast(): pass
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.slow
@pytest.mark.soak
def test_hours(): pass
@pytest.mark.soak
def test_days(): pass
"""


@pytest.mark.parametrize(("asked", "run"), [("slow", {"test_slow"}), ("soak", {"test_hours", "test_days"})])
def test_what_takes_hours_runs_only_where_it_is_named(asked: str, run: set[str], tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests/conftest.py", tmp_path / "tests")
    (tmp_path / "tests/test_lanes_of_this.py").write_text(TESTS)
    call = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", asked]
    found = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert {line.rpartition("::")[2] for line in found.splitlines() if "::" in line} == run
