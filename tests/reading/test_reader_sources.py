"""Every reader is tried on outputs that the tools themselves wrote: SOURCES.md lists them, and the tests that read them."""

import re
from collections import Counter
from pathlib import Path

import pytest

from fuzzing.readers import TARGETS

HERE = Path(__file__).parent
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in (HERE / "SOURCES.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
]
OUTPUTS = Counter(row[0].strip("`") for row in ROWS if len(row) == 4)
REASONS = {row[0].strip("`"): row[1] for row in ROWS if len(row) == 2}


@pytest.mark.parametrize("reader", TARGETS)
def test_a_reader_is_tried_on_two_real_outputs_or_says_why_not(reader: str) -> None:
    assert (OUTPUTS[reader] >= 2) != bool(REASONS.get(reader)), f"{reader}: two rows in SOURCES.md, or a reason"


def test_the_page_names_readers_sources_and_tests_that_exist() -> None:
    assert {*OUTPUTS, *REASONS} <= set(TARGETS)
    assert {len(row) for row in ROWS} == {2, 4} and all(all(row) for row in ROWS)
    missing = {row[3] for row in ROWS if len(row) == 4 and not (HERE.parent / row[3]).is_file()}
    assert not missing


def test_a_public_source_that_stands_in_a_test_of_the_readers_is_named_there() -> None:
    """An issue in the page is the address above its excerpt: whoever doubts an excerpt can look it up."""
    for _, _, source, test in (row for row in ROWS if len(row) == 4):
        text = (HERE.parent / test).read_text(encoding="utf-8")
        if "corpus" not in source:
            for repository, number in re.findall(r"([\w.-]+/[\w.-]+)#(\d+)", source):
                assert re.search(rf"{re.escape(repository)}(?:/(?:issues|pull)/|#){number}\b", text), (
                    repository,
                    number,
                    test,
                )
