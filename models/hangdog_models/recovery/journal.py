"""An entry of the history as one line of JSON, and back; the caller appends the lines to a file."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.recovery.recovery_history import (
    Began,
    Entry,
    Finished,
    MachinesChanged,
    OutageOpened,
    Progressed,
    RecoveryRung,
    RecoveryStep,
    SpareOutcome,
    SpareTested,
    SpareWarmed,
    Steady,
    StepDone,
    Stepped,
    Tried,
    Troubled,
)
from hangdog_models.recovery.trouble import Cause, Trouble

#: Characters of one line: an entry names some machines and says some sentences.
LONGEST = 1 << 20
#: No Unix time and no step number is larger: JSON can hold numbers that no float does.
MOST = 1e15

#: Keys of a line that differ from the names of their fields.
_KEYS = {"reasons": "because", "message": "words"}
_NAMES = {
    OutageOpened: "opened",
    Began: "began",
    Progressed: "progressed",
    Troubled: "troubled",
    Stepped: "stepped",
    StepDone: "done",
    Tried: "tried",
    SpareTested: "spare-tested",
    SpareWarmed: "spare-warmed",
    Steady: "steady",
    MachinesChanged: "changed",
    Finished: "finished",
}


def written(entry: Entry) -> str:
    """The entry as one line, without its end."""
    return json.dumps({"entry": _NAMES[type(entry)], **_row(asdict(entry))}, ensure_ascii=True)


def _row(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an entry by the keys of its line, so that older files are still read."""
    return {_KEYS.get(key, key): _row(value) if isinstance(value, dict) else value for key, value in fields.items()}


def read(line: str) -> Entry:
    """The entry of a line; raises UnreadableEvidence if it is none."""
    if len(line) > LONGEST:
        raise UnreadableEvidence(f"a line of {len(line)} characters is no entry of a history", code="too-long")
    try:
        return _entry(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"no entry of a history: {type(error).__name__}: {error}"
        raise UnreadableEvidence(
            what, "it is what `hangdog run` wrote; one line an entry", code="damaged-history"
        ) from error


def _entry(row: Mapping[str, Any]) -> Entry:
    at = _number(row["at"])
    match row["entry"]:
        case "opened":
            return OutageOpened(at, _text(row["run"]))
        case "began":
            return Began(at, _texts(row["machines"]), _text(row["token"]))
        case "progressed":
            return Progressed(at)
        case "troubled":
            return Troubled(at, _number(row["since"]), _trouble(row["trouble"]))
        case "stepped":
            return Stepped(at, int(_number(row["number"])), _step(row["step"]))
        case "done":
            ok = row["ok"] is True
            return StepDone(at, int(_number(row["number"])), ok, _text(row["words"]), _texts(row["convicted"]))
        case "tried":
            return Tried(at, _texts(row["passed"]), _texts(row["failed"]))
        case "spare-tested":
            levels = tuple(int(_number(level)) for level in row["levels"])
            outcome = SpareOutcome(row["outcome"])
            return SpareTested(at, _text(row["machine"]), levels, outcome, _text(row["words"]))
        case "spare-warmed":
            command, ok = _text(row["command"]), row["ok"] is True
            return SpareWarmed(at, _text(row["machine"]), command, ok, _text(row["words"]))
        case "steady":
            return Steady(at)
        case "changed":
            return MachinesChanged(at, _text(row["name"]), row["urgent"] is True)
        case "finished":
            return Finished(at)
        case other:
            raise ValueError(f"{other!r} is no kind of entry")


def _trouble(row: Mapping[str, Any]) -> Trouble:
    return Trouble(Cause(row["cause"]), _text(row["what"]), tuple(_texts(one) for one in row["choices"]))


def _step(row: Mapping[str, Any]) -> RecoveryStep:
    because, machines, changes = (_texts(row[key]) for key in ("because", "machines", "changes"))
    return RecoveryStep(RecoveryRung(row["act"]), because, machines, changes, _number(row["wait_s"]))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    if not abs(value) < MOST:  # NaN, too
        raise ValueError("a number beyond all moments")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list of texts")
    return tuple(_text(one) for one in value)
