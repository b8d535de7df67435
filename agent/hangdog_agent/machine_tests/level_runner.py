"""Climbs the ladder on this machine: the levels asked for, in order, within a budget; and writes what came of it."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from hangdog_agent.machine_tests.level import Level, LevelOutcome, LevelResult, PartKind
from hangdog_models.reading.printable import printable

log = logging.getLogger(__name__)

SCHEMA = "hangdog.diagnosis/1"
#: Characters of one sentence, and lines of evidence for one result.
_LONGEST, _LINES = 500, 16


class LadderOutcome(StrEnum):
    """What all levels together say of this machine."""

    CONVICTED = "convicted"  # a test failed and names this machine or a device of it
    FAILED = "failed"  # a test failed for which this machine is not to be evicted: a link, a group, a command
    OPEN = "inconclusive"  # nothing failed, and some test did not come to an end, or none ran
    NOT_CONVICTED = "not convicted"  # every test ran and passed, which is no proof of health


@dataclass(frozen=True, slots=True)
class Climbed:
    """One level: what it found, or why it was skipped."""

    number: int
    name: str
    results: tuple[LevelResult, ...] = ()
    skipped: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LevelsReport:
    """All levels that were asked for. `remarks` tell what is amiss beside them, such as settings that were not restored."""

    levels: tuple[Climbed, ...]
    remarks: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[LevelResult, ...]:
        return tuple(result for level in self.levels for result in level.results)

    @property
    def verdict(self) -> LadderOutcome:
        outcomes = {result.outcome for result in self.results}
        if any(one.sort in (PartKind.MACHINE, PartKind.DEVICE) for result in self.results for one in result.convicts):
            return LadderOutcome.CONVICTED
        if LevelOutcome.FAIL in outcomes:
            return LadderOutcome.FAILED
        if {level.number for level in self.levels} > {0} and not any(result.level for result in self.results):
            return LadderOutcome.OPEN  # tests were asked for, and only what the machine tells by itself was read
        out_of_time = any(level.skipped == _NO_TIME for level in self.levels)
        if LevelOutcome.INCONCLUSIVE in outcomes or not outcomes or out_of_time:
            return LadderOutcome.OPEN
        return LadderOutcome.NOT_CONVICTED


class SettingsBackup(Protocol):
    """What remembers the settings of devices, and puts them back: see Keepsake."""

    def record(self) -> None: ...

    def settle(self) -> tuple[str, ...]: ...


_NO_TIME = "the budget is spent"
#: With less left than this a level is not begun: a program that imports torch has not even started by then.
_LEAST_S = 5.0


def climb(
    levels: Iterable[Level],
    budget_s: float,
    stop: threading.Event,
    tell: Callable[[Level], None] = lambda level: None,
    further: bool = True,
    backup: SettingsBackup | None = None,
    before: Sequence[Climbed] = (),
) -> LevelsReport:
    """Runs levels one after the other for at most `budget_s` seconds in all; ends early once `stop` is set.

    `keepsake` has the settings of the GPUs put back. Without `further` the first level that convicts this machine is the last:
    there is no need to know more. What was climbed `before` is part of the diagnosis.
    """
    until = time.monotonic() + budget_s
    remarks: tuple[str, ...] = ()
    if backup is not None:
        backup.record()
    try:
        climbed = _climbed(levels, until, stop, tell, further, before)
    finally:  # also on the way out by Ctrl-C or SIGTERM
        if backup is not None:
            remarks = backup.settle()
    return LevelsReport(tuple(climbed), remarks)


def _climbed(
    levels: Iterable[Level],
    until: float,
    stop: threading.Event,
    tell: Callable[[Level], None],
    further: bool,
    before: Sequence[Climbed],
) -> list[Climbed]:
    climbed = list(before)
    for level in sorted(levels, key=lambda one: one.number):
        if why := level.supported():
            climbed.append(Climbed(level.number, level.name, skipped=why))
            continue
        left = until - time.monotonic()
        if stop.is_set() or left < _LEAST_S:
            why = "stopped" if stop.is_set() else _NO_TIME
            climbed.append(Climbed(level.number, level.name, skipped=why))
            continue
        if not further and LevelsReport(tuple(climbed)).verdict is LadderOutcome.CONVICTED:
            climbed.append(Climbed(level.number, level.name, skipped="a level before it has convicted this machine"))
            continue
        tell(level)
        began = time.monotonic()
        try:
            results = level.run(min(left, level.deadline_s), stop)
        except Exception as error:  # a bug in one level must not cost what the others found
            log.exception("level %d failed", level.number)
            words = f"this is a bug in hangdog: {type(error).__name__}: {error}"
            results = (LevelResult(level.number, level.name, LevelOutcome.INCONCLUSIVE, words),)
        climbed.append(Climbed(level.number, level.name, results, seconds=time.monotonic() - began))
    return climbed


def to_json(diagnosis: LevelsReport, machine: str, tools: Mapping[str, str]) -> dict[str, Any]:
    """The report for programs; `tools` are versions of what tested."""
    return {
        "schema": SCHEMA,
        "machine": machine,
        "verdict": str(diagnosis.verdict),
        "tools": dict(tools),
        "remarks": list(diagnosis.remarks),
        "levels": [
            {
                "level": level.number,
                "name": level.name,
                "skipped": level.skipped,
                "seconds": round(level.seconds, 1),
                "results": [_result(result) for result in level.results],
            }
            for level in diagnosis.levels
        ],
    }


def _result(result: LevelResult) -> dict[str, Any]:
    return {
        "test": result.test,
        "outcome": str(result.outcome),
        "says": printable(result.message, _LONGEST),
        "convicts": [{"sort": str(one.sort), "names": list(one.names)} for one in result.convicts],
        "evidence": [printable(line, _LONGEST) for line in result.evidence[:_LINES]],
        "measures": {name: round(value, 6) for name, value in result.measures.items()},
        "repetitions": result.repetitions,
        "seconds": round(result.seconds, 1),
        "key": result.key,
        "digests": dict(result.digests),
    }


def golden(documents: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Digests by key out of reports of machines that are believed; what is no report of ours holds none.

    Where several reports give other digests for one key, none of them is believed.
    """
    found: dict[str, dict[str, str]] = {}
    disputed = set()
    for document in documents:
        levels = document.get("levels")
        for level in levels if isinstance(levels, list) else ():
            results = level.get("results") if isinstance(level, dict) else ()
            for result in results if isinstance(results, list) else ():
                key, digests = (result.get("key"), result.get("digests")) if isinstance(result, dict) else (None, None)
                if isinstance(key, str) and isinstance(digests, dict) and digests and result.get("outcome") == "pass":
                    stored = found.setdefault(key, {})
                    for item, mark in digests.items():
                        if stored.setdefault(str(item), str(mark)) != str(mark):
                            disputed.add(key)
    return {key: digests for key, digests in found.items() if key not in disputed}
