"""Every number that moves odds or decides a verdict, from one dated table with the source of each."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import isfinite
from typing import Any

from hangdog_models.errors import OurFault

#: The table used.
TABLE = "likelihoods@2026-11"
_KEYS = {"name", "value", "meaning", "evidence", "case", "judged", "error", "scenes", "worlds"}


@dataclass(frozen=True, slots=True)
class Likelihood:
    """One row: its number, or its numbers by cause; what they multiply or decide; and their source.

    `case` names a case whose verdict changes with the number, one for each cause; it is empty where none is known.
    `judged`: the value set by judgement before a fit moved it; empty if none did.
    """

    name: str
    value: float | Mapping[str, float]
    meaning: str
    evidence: str
    case: str | Mapping[str, str]
    judged: float | Mapping[str, float] | None = None


def parse(text: str) -> Mapping[str, Likelihood]:
    """Reads the text of a table; raises OurFault if a row is not valid."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OurFault(f"table of likelihoods: {error}", code="damaged-rules") from error
    rows: dict[str, Likelihood] = {}
    try:
        for row in document["likelihood"]:
            one = _row(row)
            if one.name in rows:
                raise ValueError(f"{one.name!r} stands in two rows")
            rows[one.name] = one
    except (KeyError, TypeError, ValueError) as error:
        raise OurFault(f"table of likelihoods {document.get('name')!r}: {error}", code="damaged-rules") from error
    return rows


@cache
def packaged(name: str = TABLE) -> Mapping[str, Likelihood]:
    """The table that ships with hangdog."""
    return parse(resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def likelihood(name: str) -> float:
    """The number of a row that has one."""
    value = _found(name).value
    if isinstance(value, Mapping):
        raise OurFault(f"likelihood {name!r} is a number for each cause: ask for it by cause", code="bug")
    return value


def by_cause(name: str) -> Mapping[str, float]:
    """The numbers of a row that has one for each cause."""
    value = _found(name).value
    if not isinstance(value, Mapping):
        raise OurFault(f"likelihood {name!r} is one number, whatever the cause", code="bug")
    return value


def _found(name: str) -> Likelihood:
    try:
        return packaged()[name]
    except KeyError:
        raise OurFault(f"{TABLE} has no row {name!r}", code="damaged-rules") from None


def _row(row: Mapping[str, Any]) -> Likelihood:
    if unknown := set(row) - _KEYS:
        raise ValueError(f"{row.get('name')!r} has unknown keys {sorted(unknown)}")
    name, value, case = row["name"], _value(row["name"], row["value"]), row.get("case", "")
    for key in ("name", "meaning", "evidence"):
        if not isinstance(row[key], str) or not row[key].strip():
            raise ValueError(f"{name!r}: {key} = {row[key]!r} says nothing")
    if isinstance(value, Mapping) and case and set(case) != set(value):
        raise ValueError(f"{name!r} has not a case for each of its causes {sorted(value)}")
    judged = _value(name, row["judged"]) if "judged" in row else None
    return Likelihood(name, value, row["meaning"], row["evidence"], case, judged)


def _value(name: str, value: object) -> float | Mapping[str, float]:
    if not isinstance(value, Mapping):
        return _number(name, value)
    if not value:
        raise ValueError(f"{name!r} has no causes")
    return {cause: _number(name, number) for cause, number in value.items()}


def _number(name: str, value: object) -> float:
    if not isinstance(value, float | int) or isinstance(value, bool) or not isfinite(value) or value <= 0:
        raise ValueError(f"{name!r}: {value!r} is no number above zero")
    return float(value)
