"""Every bundle of the corpus meets its `expected.toml`, through the command a user types.

The corpus is third-party test data beside the repository, in `../shared/corpus`; without it these tests say so and skip.
"""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from hangdog.main import main

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
pytestmark = [
    pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the repository (../shared/corpus)"),
    pytest.mark.timeout(400),
]


def triaged(command: list[str], **_: Any) -> "subprocess.CompletedProcess[bytes]":
    """What the command answers, without a process of its own: a hundred of them would spend a minute on imports."""
    answer = CliRunner().invoke(main, command[1:])
    return subprocess.CompletedProcess(command, answer.exit_code, answer.stdout_bytes, answer.stderr_bytes)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The corpus's own check of one of its folders; `processes`: each bundle is triaged by a process of its own."""
    spec = importlib.util.spec_from_file_location("check_bundles", CORPUS / "check_bundles.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def report(folder: str, *more: str, processes: bool = False) -> str:
        command = f"{sys.executable} -m hangdog" if processes else "hangdog"
        arguments = ["--cmd", f"{command} triage {{bundle}} --format json", "--jobs", "1", *more]
        monkeypatch.setattr(sys, "argv", ["check_bundles.py", str(CORPUS / folder), *arguments])
        if not processes:
            instead = SimpleNamespace(run=triaged, DEVNULL=None, TimeoutExpired=subprocess.TimeoutExpired)
            monkeypatch.setattr(module, "subprocess", instead)
        module.main()
        return capsys.readouterr().out

    return report


def failures(report: str) -> list[str]:
    assert re.search(r"^\d+ passed of \d+$", report, re.MULTILINE), report
    return [line for line in report.splitlines() if line.startswith("FAIL")]


@pytest.mark.parametrize(("folder", "processes"), [("gloo", False), ("nvrx", True), ("public", False)])
def test_every_bundle_meets_its_expectation(run: Callable[..., str], folder: str, processes: bool) -> None:
    assert failures(run(folder, processes=processes)) == []


def test_no_rule_keys_on_the_name_of_the_injecting_function(run: Callable[..., str]) -> None:
    assert failures(run("gloo", "--blank", "fault=before_step")) == []


def test_no_rule_names_a_function_that_injects() -> None:
    """What the test trainers call their faults must stay unknown to the rules."""
    rules = Path(__file__).parents[2].glob("models/hangdog_models/rules/*.toml")
    for text in (path.read_text() for path in rules):
        functions = re.findall(r'"([^"]+)"', "".join(re.findall(r"functions = \[(.*?)\]", text, re.DOTALL)))
        assert not {"fault", "before_step", "fake_hang"} & set(functions)
