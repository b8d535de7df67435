"""Which spares passed their test, by the report of a campaign (`hangdog.campaign/1`).

The bar is higher than for a suspected machine. A campaign convicts after two failed launches, but one is enough not to take
a spare, for there are others. Only a convicted spare is out for good.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hangdog_models.planning.campaign.level_planner import LADDER
from hangdog_models.reading.printable import printable

#: The levels by which a spare can be tested: the others take partners.
LEVELS = tuple(level for level, one in LADDER.items() if one.least == 1)


@dataclass(frozen=True, slots=True)
class SpareTest:
    """The spares that passed, and why each of the others did not: `failed` are convicted, `doubtful` are undecided."""

    passed: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    doubtful: Mapping[str, str] = field(default_factory=dict)


def of_campaign(machines: Sequence[str], levels: Collection[int], report: Mapping[str, Any]) -> SpareTest:
    """What a report says of each machine; a machine that it does not name is doubtful."""
    passed, failed, doubtful = [], {}, {}
    convicted = {str(one.get("machine")): one.get("because") for one in _tables(report, "convicted")}
    tests = {LADDER[level].name for level in levels}
    for machine in machines:
        mine = [one for one in _tables(report, "launches") if one.get("machines") == [machine]]
        if machine in convicted:
            failed[machine] = _words(convicted[machine]) or "it is convicted"
        elif wrong := [one for one in mine if one.get("result") == "fail"]:
            doubtful[machine] = f"it failed a test: {_words(wrong[0].get('says'))}"
        elif tests <= {str(one.get("test")) for one in mine if one.get("result") == "pass"}:
            passed.append(machine)
        else:
            reported = [_words(one.get("why")) for one in _tables(report, "untested") if one.get("machine") == machine]
            doubtful[machine] = f"it was not tested: {reported[0] if reported else 'the time did not suffice'}"
    return SpareTest(tuple(passed), failed, doubtful)


def _tables(document: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    value = document.get(name)
    return (one for one in (value if isinstance(value, list) else ()) if isinstance(one, dict))


def _words(value: object) -> str:
    """The reason for people: the first of several."""
    first = value[0] if isinstance(value, list) and value else value
    return printable(first) if isinstance(first, str) else ""
