"""Every reason of a verdict has a stable code, and the page of reasons explains each code that there is."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("models/hangdog_models", "cli/hangdog", "proto/hangdog_proto", "server/hangdog_server", "agent/hangdog_agent")
PAGE = (ROOT / "docs" / "reasons.md").read_text("utf-8")
FORM = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+){0,4}")
#: What passes on a code that stands elsewhere: a name, or what is looked up in a table of codes.
PASSED_ON = (ast.Name, ast.Attribute, ast.Call, ast.BoolOp)


@cache
def _trees() -> dict[str, ast.Module]:
    """Each file of the shipped code that makes reasons, by its path."""
    texts = {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
    }
    return {path: ast.parse(text) for path, text in texts.items() if "VerdictReason(" in text}


@cache
def _made() -> tuple[tuple[str, ast.expr], ...]:
    """Where a reason is made: the place, and the code it is given."""
    return tuple(
        (f"{path}:{node.lineno}", node.args[0])
        for path, tree in _trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "VerdictReason"
    )


def _stands_for(code: ast.expr) -> list[ast.expr]:
    """The code itself, or both of a condition."""
    return [*_stands_for(code.body), *_stands_for(code.orelse)] if isinstance(code, ast.IfExp) else [code]


def _tables() -> Iterator[tuple[str, ast.expr]]:
    """The codes of tables whose name ends in `_CODES`."""
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.AnnAssign) or not ast.unparse(node.target).endswith("_CODES"):
                continue
            values = node.value.values if isinstance(node.value, ast.Dict) else []
            yield from ((f"{path}:{one.lineno}", one) for one in values)


def _codes() -> dict[str, str]:
    """The codes that stand in the source, each with one place."""
    given = [(place, one) for place, code in (*_made(), *_tables()) for one in _stands_for(code)]
    return {one.value: place for place, one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def test_every_reason_has_a_code_or_passes_one_on() -> None:
    allowed = (ast.Constant, *PASSED_ON)
    bare = [place for place, code in _made() for one in _stands_for(code) if not isinstance(one, allowed)]
    assert _made() and bare == []


def test_codes_of_reasons_are_words_joined_by_hyphens() -> None:
    assert {code: place for code, place in _codes().items() if not FORM.fullmatch(code)} == {}


def test_the_page_of_reasons_explains_each_code_once_and_no_other() -> None:
    explained = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert sorted(explained) == sorted(_codes())
