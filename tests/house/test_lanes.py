"""Which tests run when: the fast ones always, slow ones with `-m slow`, and those that take hours only where they are named.

The fast ones run side by side, a few of them and the slow ones one after another.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = ROOT / "tests/conftest.py"
TESTS = """
import os, pytest
def test_fast(): pass
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.slow
@pytest.mark.soak
def test_hours(): pass
@pytest.mark.soak
def test_days(): pass
"""


SIDE_BY_SIDE = """
import os
def test_well(): assert os.environ["PYTEST_XDIST_WORKER"]
def test_ill(): assert os.environ["PYTEST_XDIST_WORKER"] == "a failing test says why"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One with our settings, and no test yet."""
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(CONFTEST, tmp_path / "tests")
    return tmp_path


def pytested(repository: Path, tests: str, *asked: str) -> str:
    """What pytest says to these tests."""
    (repository / "tests/test_lanes_of_this.py").write_text(tests)
    call = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *asked]
    return subprocess.run(call, cwd=repository, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize(("asked", "run"), [("slow", {"test_slow"}), ("soak", {"test_hours", "test_days"})])
def test_what_takes_hours_runs_only_where_it_is_named(asked: str, run: set[str], repository: Path) -> None:
    found = pytested(repository, TESTS, "-q", "--collect-only", "-m", asked)
    assert {line.rpartition("::")[2] for line in found.splitlines() if "::" in line} == run


def options(target: str, *asked: str) -> list[str]:
    """What `make` tells pytest, each time that it calls it."""
    # a make that runs these tests hands its own options down
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))}
    make = ["make", "-n", target, *asked]
    says = subprocess.run(make, cwd=ROOT, env=own, capture_output=True, text=True, check=True).stdout
    return re.findall(r" -m pytest (.*)", says)


def test_the_fast_tests_run_side_by_side_and_those_that_are_timed_do_not() -> None:
    assert all("-n auto" in one for one in options("test"))
    assert not any("-n " in one for one in options("soak") + options("test-slow", "ARGS=tests/live"))


def test_slow_tests_run_side_by_side_or_alone_and_none_is_left_out() -> None:
    together, alone = options("test-slow")
    assert '-m "slow and parallel" -n auto' in together
    assert '-m "slow and not parallel"' in alone and "-n " not in alone


@pytest.mark.parametrize(
    ("paths", "keyword", "marks", "workers"),
    [
        ([], "", "not slow", True),
        (["tests/house", "tests/server"], "", "not slow", True),
        (["tests/house", "tests/house/test_lanes.py"], "", "not slow", True),
        (["tests/house/test_lanes.py"], "", "not slow", False),
        (["tests/house/test_lanes.py::test_a", "tests/house/test_rooms.py::test_b[c/d]"], "", "not slow", False),
        (["tests/house"], "report", "not slow", False),
        ([], "", "hypothesis", True),
        ([], "", "slow and parallel", True),
        ([], "", "slow and not parallel", False),
        ([], "", "slow", False),
        ([], "", "soak", False),
    ],
)
def test_a_few_tests_wait_for_no_workers(
    paths: list[str], keyword: str, marks: str, workers: bool, request: pytest.FixtureRequest
) -> None:
    named = [os.fspath(ROOT / path) for path in paths]
    conftest: Any = request.config.pluginmanager.get_plugin(os.fspath(CONFTEST))
    option = SimpleNamespace(file_or_dir=named, keyword=keyword, markexpr=marks)
    assert bool(conftest.pytest_xdist_auto_num_workers(SimpleNamespace(option=option))) is workers


def test_tests_that_run_side_by_side_are_told_of_as_ever(repository: Path) -> None:
    said = pytested(repository, SIDE_BY_SIDE, *options("test")[0].split())
    assert "a failing test says why" in said and "FAILED tests/test_lanes_of_this.py::test_ill - " in said
    assert re.fullmatch(r"1 failed, 1 passed in [0-9.]+s.*", said.splitlines()[-1]), said
