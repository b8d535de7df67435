"""Reads values out of what a program of ours reported: it ran on a machine that may be sick, so any of them may be anything."""

import math
from collections.abc import Mapping
from typing import Any

from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.printable import printable

#: Entries of one list; the longest of ours has one for each device and repetition.
_MOST = 4096
_SHORT = Limits(text=500)


def table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table, empty where it is none."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def tables(document: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    """The tables of a list."""
    value = document.get(name)
    return tuple(one for one in value[:_MOST] if isinstance(one, dict)) if isinstance(value, list) else ()


def text(document: Mapping[str, Any], name: str) -> str:
    return printable(text_of(document.get(name), _SHORT))


def texts(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The texts of a list."""
    value = document.get(name)
    return tuple(printable(text_of(one, _SHORT)) for one in value[:_MOST]) if isinstance(value, list) else ()


def whole(document: Mapping[str, Any], name: str) -> int:
    """A whole number, 0 where it is none."""
    return int_of(document.get(name)) or 0


def number(document: Mapping[str, Any], name: str) -> float:
    """A finite number, 0 where it is none."""
    return _finite(document.get(name)) or 0.0


def numbers(document: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """The finite numbers of a list."""
    value = document.get(name)
    found = (_finite(one) for one in value[:_MOST]) if isinstance(value, list) else ()
    return tuple(one for one in found if one is not None)


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        finite = float(value)
    except OverflowError:
        return None
    return finite if math.isfinite(finite) else None
