"""Docstrings are written in short sentences: 16 words on average, one in twenty over 30 at most."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.prose import LONG, sentences

ROOT = Path(__file__).parents[2]
MEAN, LONG_SHARE = 16.0, 0.05
#: The packages that are written so; diagnosis and planning by themselves, too.
PLAIN = (
    "agent/hangdog_agent",
    "cli/hangdog",
    "models/hangdog_models",
    "models/hangdog_models/diagnosis",
    "models/hangdog_models/planning",
    "proto/hangdog_proto",
    "server/hangdog_server",
)
#: What a compiler writes is not ours to word.
GENERATED = "generated"


def docstrings(source: str) -> Iterator[str]:
    """The docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


@pytest.mark.parametrize("package", PLAIN)
def test_sentences_of_docstrings_are_short(package: str) -> None:
    counted = sorted(
        (
            (len(one.split()), one)
            for path in sorted((ROOT / package).rglob("*.py"))
            if GENERATED not in path.parts
            for text in docstrings(path.read_text("utf-8"))
            for one in sentences(text)
        ),
        reverse=True,
    )
    assert counted, f"no docstring in {package}"
    assert sum(words for words, _ in counted) / len(counted) <= MEAN
    long = [one for words, one in counted if words >= LONG]
    assert len(long) / len(counted) <= LONG_SHARE, long[:5]


def test_docstrings_of_every_kind_are_counted() -> None:
    source = '"""One."""\nclass Two:\n    """Two."""\n    async def three(self):\n        """Three."""\ndef four():\n    "Four."\n    x = "no"\n'
    assert sorted(docstrings(source)) == ["Four.", "One.", "Three.", "Two."]
