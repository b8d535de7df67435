"""The table of likelihoods is complete, every row is used once, and under its own name."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

import pytest

from hangdog_models.errors import OurFault
from hangdog_models.rules.likelihoods import TABLE, by_cause, likelihood, packaged, parse
from support.refused import refused

MODELS = Path(__file__).resolve().parents[2] / "models" / "hangdog_models"
TEXT = resources.files("hangdog_models.rules").joinpath(f"{TABLE}.toml").read_text(encoding="utf-8")
#: What reads a row: the two doors of the table, and the one that makes odds of several causes of it.
READERS = ("likelihood", "by_cause", "_odds")
ROW = '[[likelihood]]\nname = "x"\nvalue = 1.5\nmeaning = "what it does"\nevidence = "set by judgement"\n'


def readings() -> Iterator[tuple[str, str]]:
    """The row that is read at each place of the models, and the constant that it is written to, if any."""
    for path in sorted(MODELS.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        given = {
            id(node.value): node.targets[0].id
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=reader), args=[ast.Constant(value=str(name))]) if reader in READERS:
                    yield name, given.get(id(node), "")


def test_every_row_is_read_at_one_place_and_no_other_row_is() -> None:
    read = Counter(name for name, _ in readings())
    assert set(read) == set(packaged())
    assert not [name for name, times in read.items() if times > 1]


def test_a_constant_has_the_name_of_its_row() -> None:
    """What stands alone; the odds of activities stand in a table of their own."""
    named = {name: constant for name, constant in readings() if constant and not name.startswith("doing_")}
    assert len(named) > 100 and {name: name.upper() for name in named} == named


def test_the_file_carries_its_own_name_and_date() -> None:
    assert tomllib.loads(TEXT)["name"] == TABLE and re.fullmatch(r"likelihoods@\d{4}-\d\d", TABLE)


def test_no_row_says_what_another_one_says() -> None:
    meanings = Counter(row.meaning for row in packaged().values())
    assert not [meaning for meaning, times in meanings.items() if times > 1]


def test_every_activity_has_odds_of_its_machine() -> None:
    rows = [name for name in packaged() if name.startswith(("doing_", "failed_")) and name != "doing_anything"]
    assert rows and all("machine" in by_cause(name) for name in rows)


def test_a_row_is_read_as_it_is_written() -> None:
    assert parse(ROW)["x"].value == 1.5
    assert parse(ROW.replace("1.5", "{ machine = 2, slow = 0.5 }"))["x"].value == {"machine": 2.0, "slow": 0.5}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"1.5": "0"}, "no number above zero"),
        ({"1.5": "nan"}, "no number above zero"),
        ({"1.5": "true"}, "no number above zero"),
        ({"1.5": '"much"'}, "no number above zero"),
        ({"1.5": "{ }"}, "has no causes"),
        ({"1.5": "1.5\njudged = -1"}, "no number above zero"),
        ({"1.5": "{ machine = -1 }"}, "no number above zero"),
        ({'"what it does"': '" "'}, "meaning"),
        ({'"set by judgement"': '""'}, "evidence"),
        ({"evidence": "evidenec"}, "unknown keys"),
        ({'evidence = "set by judgement"\n': ""}, "evidence"),
        (
            {"1.5": "{ machine = 1, slow = 2 }", '"set by judgement"': '"a"\ncase = { machine = "b" }'},
            "a case for each",
        ),
        ({"[[likelihood]]": "[[likelihod]]"}, "likelihood"),
        ({"[[likelihood]]": "[[likelihood]"}, "table of likelihoods"),
        ({ROW: ROW + ROW}, "stands in two rows"),
    ],
)
def test_what_no_row_can_mean_is_refused(change: Mapping[str, str], says: str) -> None:
    text = ROW
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(OurFault, match=says):
        parse(text)


def test_who_asks_for_a_row_that_is_none_or_otherwise_than_it_is_written_is_told() -> None:
    with refused("damaged-rules", OurFault, "'luck'"):
        likelihood("luck")
    with refused("bug", OurFault, "'doing_stopped'"):
        likelihood("doing_stopped")
    with refused("bug", OurFault, "'root_still'"):
        by_cause("root_still")
