"""Reads the YAML of our manifests and rules, without a library: as much of it as they use, and no more."""

import json
import re
from pathlib import Path
from typing import Any


def documents(path: Path) -> list[Any]:
    """The documents of a manifest, for as much of YAML as ours use: it refuses the rest."""
    made = []
    for text in re.split(r"^---$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        value, rest = block([(len(line) - len(line.lstrip(" ")), line.strip()) for line in lines])
        assert not rest, f"{path.name}: {rest[0]}"
        made.append(value)
    return made


Lines = list[tuple[int, str]]


def block(lines: Lines) -> tuple[Any, Lines]:
    """Reads the mapping or list that begins with the first line; answers it and the lines after it."""
    indent = lines[0][0]
    if lines[0][1].startswith("- "):
        items = []
        while lines and lines[0][0] == indent and lines[0][1].startswith("- "):
            inner = lines[0][1][2:]
            if re.match(r"[\w./-]+:( |$)", inner):
                item, lines = block([(indent + 2, inner), *lines[1:]])
            else:
                item, lines = scalar(inner), lines[1:]
            items.append(item)
        return items, lines
    mapping: dict[str, Any] = {}
    while lines and lines[0][0] == indent and not lines[0][1].startswith("- "):
        matched = re.fullmatch(r"([\w./-]+):(?: (.*))?", lines[0][1])
        assert matched, lines[0]
        key, text = matched[1], matched[2]
        assert key not in mapping, f"{key} twice"
        if text:
            mapping[key], lines = scalar(text), lines[1:]
        else:
            assert len(lines) > 1 and lines[1][0] > indent, f"{key} has no value"
            mapping[key], lines = block(lines[1:])
    assert not lines or lines[0][0] < indent, lines[0]
    return mapping, lines


def scalar(text: str) -> Any:
    if text in ("{}", "[]", "true", "false") or re.fullmatch(r"-?\d+", text) or text.startswith('"'):
        return json.loads(text)
    assert not re.search(r"^[&*|>!%@`]|[{}\[\]]|: | #", text), f"more YAML than is read here: {text}"
    return text
