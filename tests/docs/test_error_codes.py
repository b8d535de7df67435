"""Every error that reaches a user has a stable code, and the page of errors explains each code that there is."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("models/hangdog_models", "cli/hangdog", "proto/hangdog_proto", "server/hangdog_server", "agent/hangdog_agent")
PAGE = (ROOT / "docs" / "errors.md").read_text("utf-8")
FORM = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+){0,5}")


CLASS = re.compile(r"^class (\w+)\(([\w, .]+)\):", re.MULTILINE)


@cache
def _sources() -> dict[str, str]:
    """The text of each file of the shipped code, by its path."""
    return {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
    }


@cache
def _errors() -> frozenset[str]:
    """The names of all classes that derive from HangdogError, directly or not."""
    bases = {name: set(parents.split(", ")) for text in _sources().values() for name, parents in CLASS.findall(text)}
    found = {"HangdogError"}
    while more := {name for name, parents in bases.items() if parents & found} - found:
        found |= more
    return frozenset(found)


@cache
def _made() -> tuple[tuple[str, ast.Call], ...]:
    """Where such an error is made: the place, and the call."""
    some = re.compile(rf"\b(?:{'|'.join(_errors())})\(")
    return tuple(
        (f"{path}:{node.lineno}", node)
        for path, text in _sources().items()
        if some.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _errors()
    )


def _code(call: ast.Call) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)


def _codes() -> dict[str, str]:
    """The codes that stand in the source, each with one place; an expression may choose between two."""
    return {
        value.value: place
        for place, call in _made()
        for value in ast.walk(_code(call) or ast.Pass())
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def test_every_error_has_a_code() -> None:
    assert [place for place, call in _made() if _code(call) is None] == []


def test_codes_are_words_joined_by_hyphens() -> None:
    assert {code: place for code, place in _codes().items() if not FORM.fullmatch(code)} == {}


def test_the_page_explains_each_code_once_and_no_other() -> None:
    explained = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    others = {"wrong-arguments"}  # of click, which no class of ours stands for
    assert sorted(explained) == sorted({*_codes(), *others})
