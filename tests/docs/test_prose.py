"""Pages are written in short sentences: 16 words on average, one in twenty over 30 at most."""

from pathlib import Path

import pytest

from support.prose import measured, sentences

ROOT = Path(__file__).parents[2]
MEAN, LONG = 16.0, 0.05
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_are_short(page: Path) -> None:
    found = measured(page.read_text("utf-8"))
    assert found.mean <= MEAN
    assert found.long <= LONG, found.longest[:5]


def test_only_prose_is_counted() -> None:
    page = "# A heading\n\nIt ends. It **goes** on: here\nto `a b c`.\n\n| a table. B |\n\n- an [item](there.md)\n- one\n\n```\ncode. X\n```\n"
    assert list(sentences(page)) == ["It ends.", "It goes on: here to code.", "an item", "one"]
