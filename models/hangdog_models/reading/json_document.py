"""Reads JSON within limits, and picks typed values out of what it held."""

import json
import re
from collections.abc import Iterator
from typing import Any

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import escaped

#: How a JSON document of ours begins; a log line may begin with a bracket too (`[rank0]: …`, `[1784] …`, `[1,3]<stderr>:`).
_JSON_HEAD = re.compile(r"\s*(?:\[\s*[\[{\"\]]|\{\s*[\"}])|\s*[\[{]\s*\Z")


def looks_like_json(head: str) -> bool:
    """Whether a text that begins like this claims to be a JSON list or object."""
    return _JSON_HEAD.match(head) is not None


def read_json(text: str, limits: Limits = DEFAULTS) -> Any:
    """The value a JSON text holds; raises UnreadableEvidence where it is no JSON, or deeper or larger than the limits."""
    check_size(text, limits)
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise UnreadableEvidence(f"nested deeper than {limits.depth} levels (limit depth)", code="too-deep") from error
    except ValueError as error:  # JSONDecodeError, and integers of thousands of digits
        raise UnreadableEvidence(f"not JSON: {error}", code="damaged-json") from error
    _check_depth(document, limits.depth)
    return document


def check_size(text: str, limits: Limits = DEFAULTS) -> None:
    """Raises UnreadableEvidence where a JSON text, or one of several documents, may hold more than the limits."""
    if len(text) > limits.file_bytes:
        raise UnreadableEvidence(
            f"{len(text)} characters; {limits.file_bytes} are read (limit file_bytes)", code="too-large"
        )
    containers = text.count("[") + text.count("{")  # brackets inside texts count too, which real evidence can afford
    if containers > limits.containers:
        raise UnreadableEvidence(
            f"holds more than {limits.containers} lists and objects (limit containers)", code="too-many"
        )
    if containers + text.count(",") > limits.values:
        raise UnreadableEvidence(f"holds more than {limits.values} values (limit values)", code="too-many")


def text_of(value: object, limits: Limits = DEFAULTS) -> str:
    """A text value, cut at the limit and free of control characters; empty where the value is no text."""
    if not isinstance(value, str):
        return ""
    cut = value[: limits.text]
    return cut if cut.isprintable() else escaped(cut)


def int_of(value: object) -> int | None:
    """A whole number that fits 64 bits, written as a number or as digits; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 64:
        return None
    return value


def bool_of(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _check_depth(document: object, deepest: int) -> None:
    level = 0
    layer = [document]
    while layer:
        level += 1
        if level > deepest + 1:
            raise UnreadableEvidence(f"nested deeper than {deepest} levels (limit depth)", code="too-deep")
        layer = [child for value in layer for child in _children(value)]


def _children(value: object) -> Iterator[object]:
    """The containers inside a container."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (child for child in inside if isinstance(child, dict | list))
