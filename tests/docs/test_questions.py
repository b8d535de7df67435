"""What a stranger asks is answered within two clicks of the README: one to the question, one to where it is told whole."""

import re
from pathlib import Path

import pytest

from hangdog.main import LINES
from hangdog_models.verdict import Activity
from support.markdown import anchors, links
from support.prose import sentences

ROOT = Path(__file__).resolve().parents[2]
README, PAGE = ROOT / "README.md", ROOT / "docs" / "questions.md"
TEXT = PAGE.read_text("utf-8")
ANSWERS = dict(part.split("\n", 1) for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:])
#: A command line in code: what begins with the name of the program.
COMMAND = re.compile(r"`hangdog ([\w-]+)")
#: A number that was measured, or that a version has: smaller ones are words.
FIGURE = re.compile(r"(?<![\w.])\d[\d.]+\d\b")


def test_the_readme_links_to_the_page_of_questions() -> None:
    assert (PAGE, "") in links(README.read_text("utf-8"), README)
    assert len(ANSWERS) >= 10


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_has_a_short_answer_and_a_link_to_the_whole_of_it(question: str) -> None:
    answer, _, whole = ANSWERS[question].strip().rpartition("\n\n")
    assert question.endswith("?") or '"' in question, question
    assert 1 <= len(list(sentences(answer))) <= 4, answer
    found = list(links(whole, PAGE))
    assert found, "no link to where it is told whole"
    for other, anchor in found:
        assert other.is_file() and other != PAGE, other
        assert not anchor or anchor in anchors(other.read_text("utf-8")), f"{other}#{anchor}"


@pytest.mark.parametrize("question", ANSWERS)
def test_a_figure_of_an_answer_is_one_of_the_pages_that_it_links_to(question: str) -> None:
    answer, _, whole = ANSWERS[question].strip().rpartition("\n\n")
    told = "".join(page.read_text("utf-8") for page, _ in links(whole, PAGE)).replace(",", "")
    figures = FIGURE.findall(re.sub(r"`[^`]*`", "", answer).replace(",", ""))
    assert not [figure for figure in figures if figure not in told]


def test_every_command_of_the_answers_is_one_that_the_help_lists() -> None:
    told = COMMAND.findall(TEXT)
    assert len(told) > 5
    assert not set(told) - set(LINES)


def test_every_page_is_within_two_clicks_of_the_readme() -> None:
    first = {page for page, _ in links(README.read_text("utf-8"), README) if page.suffix == ".md"}
    second = {other for page in first for other, _ in links(page.read_text("utf-8"), page)}
    assert set((ROOT / "docs").glob("*.md")) <= first | second


def test_the_glossary_says_what_each_activity_is_and_goes_by_the_alphabet() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", glossary, re.MULTILINE)
    activities = [word.strip("`") for word, _ in rows if word.startswith("`")]
    assert activities == [str(one) for one in Activity]
    words = [word for word, _ in rows if not word.startswith("`") and word not in ("word", "activity")]
    assert words == sorted(words, key=str.lower)
