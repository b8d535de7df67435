"""The promises of docs/security.md: each names tests, and they are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
#: Rows of its last table: a promise, and the tests that keep it.
ROWS = [line.split("|")[1:3] for line in PAGE.partition("## Promises")[2].splitlines() if line.startswith("| ")][1:]


def test_there_are_promises() -> None:
    assert len(ROWS) > 20


@pytest.mark.parametrize(("promise", "tests"), ROWS)
def test_a_promise_names_tests_that_are_there(promise: str, tests: str) -> None:
    named = re.findall(r"`([^`]+)`", tests)
    assert promise.strip() and named
    for one in named:
        path, _, name = one.partition("::")
        text = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert f"def {name or 'test_'}" in text, one
        # what takes long is said to, so that nobody thinks that the fast lane keeps it
        if "\npytestmark" in text and "pytest.mark.slow" in text.partition("\ndef ")[0]:
            assert "(slow)" in promise, one
