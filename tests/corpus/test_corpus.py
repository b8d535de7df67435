"""Every bundle of the corpus meets its `expected.toml`, through the command a user types.

The corpus is third-party test data beside the repository, in `../shared/corpus`; without it these tests say so and skip.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
pytestmark = [
    pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the repository (../shared/corpus)"),
    pytest.mark.timeout(400),
]


def run(folder: str, *more: str) -> str:
    command = f"{sys.executable} -m hangdog triage {{bundle}} --format json"
    arguments = [str(CORPUS / folder), "--cmd", command, "--jobs", "2", *more]
    ran = subprocess.run(
        [sys.executable, str(CORPUS / "check_bundles.py"), *arguments], capture_output=True, text=True, check=False
    )
    return ran.stdout + ran.stderr


def failures(report: str) -> list[str]:
    assert re.search(r"^\d+ passed of \d+$", report, re.MULTILINE), report
    return [line for line in report.splitlines() if line.startswith("FAIL")]


@pytest.mark.parametrize("folder", ["gloo", "nvrx", "public"])
def test_every_bundle_meets_its_expectation(folder: str) -> None:
    assert failures(run(folder)) == []


def test_no_rule_keys_on_the_name_of_the_injecting_function() -> None:
    assert failures(run("gloo", "--blank", "fault=before_step")) == []


def test_no_rule_names_a_function_that_injects() -> None:
    """What the test trainers call their faults must stay unknown to the rules."""
    rules = Path(__file__).parents[2].glob("models/hangdog_models/rules/*.toml")
    for text in (path.read_text() for path in rules):
        functions = re.findall(r'"([^"]+)"', "".join(re.findall(r"functions = \[(.*?)\]", text, re.DOTALL)))
        assert not {"fault", "before_step", "fake_hang"} & set(functions)
