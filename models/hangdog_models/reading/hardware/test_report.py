"""Reads the report of a diagnosis (`hangdog.diagnosis/1`), which comes from a machine that may be sick: any of it may be anything."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import int_of, read_json, text_of
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.printable import printable

SCHEMA = "hangdog.diagnosis/1"
OUTCOMES = ("pass", "fail", "inconclusive")
#: One of 16 devices with all digests has some 100 KB; nesting and numbers are small.
LIMITS = Limits(file_bytes=1 << 20, depth=12, containers=20_000, values=200_000, text=500)
#: Levels, results of one level, convictions of one result, parts of one machine: several times what the largest has.
_LEVELS, _RESULTS, _CONVICTIONS, _PARTS = 16, 256, 32, 64
#: Characters of the name of a test or a part, and repetitions that are believed.
_NAME, _REPETITIONS = 100, 1 << 31


@dataclass(frozen=True, slots=True)
class Blamed:
    """One part that a failed test named: its `sort` as the ladder gives it (`device`, `link`, ...), and its names."""

    sort: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OneTest:
    """One test of one level; `outcome` is one of OUTCOMES."""

    level: int
    of: str
    test: str
    outcome: str
    says: str
    blamed: tuple[Blamed, ...] = ()
    repetitions: int = 0


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """What one machine said: its tests, the levels that it skipped and why, its parts by the names that tests give them."""

    tests: tuple[OneTest, ...]
    skipped: Mapping[str, str]
    parts: Mapping[str, str]
    remarks: tuple[str, ...] = ()


def read_diagnosis(text: str) -> Diagnosed:
    """The report; raises UnreadableEvidence where it is none, or larger than LIMITS."""
    document = read_json(text, LIMITS)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UnreadableEvidence(f"not a report of a diagnosis ({SCHEMA})", code="wrong-schema")
    levels = _tables(document, "levels", _LEVELS)
    skipped = {_name(level): _words(level, "skipped") for level in levels if _words(level, "skipped")}
    tests = tuple(test for level in levels for test in _tests(level))
    parts = document.get("parts")
    named = [
        (device[:_NAME], text_of(part, LIMITS)[:_NAME])
        for device, part in list((parts if isinstance(parts, dict) else {}).items())[:_PARTS]
    ]
    remarks = document.get("remarks")
    reported = tuple(
        printable(text_of(one, LIMITS)) for one in (remarks if isinstance(remarks, list) else [])[:_RESULTS]
    )
    return Diagnosed(tests, skipped, {device: part for device, part in named if part}, tuple(filter(None, reported)))


def _tests(level: Mapping[str, Any]) -> Iterator[OneTest]:
    for result in _tables(level, "results", _RESULTS):
        outcome = text_of(result.get("outcome"), LIMITS)
        yield OneTest(
            _whole(level, "level"),
            _name(level),
            _words(result, "test")[:_NAME],
            outcome if outcome in OUTCOMES else "inconclusive",
            _words(result, "says"),
            tuple(_blamed(one) for one in _tables(result, "convicts", _CONVICTIONS)) if outcome == "fail" else (),
            min(max(_whole(result, "repetitions"), 0), _REPETITIONS),
        )


def _blamed(one: Mapping[str, Any]) -> Blamed:
    names = one.get("names")
    reported = tuple(
        printable(text_of(name, LIMITS), _NAME) for name in (names if isinstance(names, list) else [])[:_PARTS]
    )
    return Blamed(_words(one, "sort")[:_NAME], reported)


def _tables(document: Mapping[str, Any], name: str, most: int) -> list[Mapping[str, Any]]:
    value = document.get(name)
    return [one for one in value[:most] if isinstance(one, dict)] if isinstance(value, list) else []


def _name(level: Mapping[str, Any]) -> str:
    return _words(level, "name")[:_NAME]


def _words(document: Mapping[str, Any], name: str) -> str:
    return printable(text_of(document.get(name), LIMITS))


def _whole(document: Mapping[str, Any], name: str) -> int:
    return int_of(document.get(name)) or 0
