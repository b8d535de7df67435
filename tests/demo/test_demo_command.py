"""`hangdog demo` before anything is started: what it lists, what it refuses, and what it never loads."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.commands.triage import demo
from hangdog.demo.faults import FAULTS
from hangdog_models.errors import WrongUse


def test_every_fault_is_listed() -> None:
    result = CliRunner().invoke(demo.command, ["--list"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines() if line[0] != " "] == list(FAULTS)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "NEEDED", ("a_package_nobody_has",))
    error = CliRunner().invoke(demo.command, ["--seed", "1"]).exception
    assert isinstance(error, WrongUse)
    assert (error.exit_code, error.hint) == (64, "in hangdog's source tree: make torch")


def test_evidence_is_never_mixed_with_what_lies_there(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    error = CliRunner().invoke(demo.command, ["--keep", str(tmp_path)]).exception
    assert isinstance(error, WrongUse)
    assert error.code == "not-empty"


def test_the_command_never_loads_torch() -> None:
    code = "import sys, hangdog.commands.triage.demo, hangdog.demo.conductor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_word_in_the_job_gives_a_fault_away() -> None:
    """Stacks show the names of files and functions: a diagnosis that keyed on one of ours would be cheating."""
    job = Path(demo.__file__).parents[1] / "demo" / "job"
    names = {name for path in job.glob("*.py") for name in (path.stem, *_functions(path.read_text()))}
    telling = {"fault", "inject", "hang", "dead", "lock", "stop", "skip", "gc", "garbage", "block", "break", "sleep"}
    assert not {name for name in names if any(word in name.lower() for word in telling)} - {"Block"}


def _functions(source: str) -> list[str]:
    return [
        line.split()[1].split("(")[0].rstrip(":")
        for line in source.splitlines()
        if line.split()[:1] in (["def"], ["class"])
    ]
