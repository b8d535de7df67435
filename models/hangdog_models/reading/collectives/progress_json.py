"""Reads and writes how far a rank's NCCL operations have come, as hangdog's profiler plug-in showed it: `hangdog.progress/1`.

docs/profiler.md describes the fields. They are those of the nouns, but for a communicator's number, which is hexadecimal text.
The list is not called after communicators, for so a report of NCCL RAS begins.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.progress.collective_progress import CollectiveProgress, Moved, NcclCall, Operation, Phase, Transfer
from hangdog_models.ranks import MAX_RANK
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits

SCHEMA = "hangdog.progress/1"
#: As many as a ring has places for.
_COMMUNICATORS, _IN_FLIGHT, _TRANSFERS = 64, 768, 512
#: Characters of a communicator's name and of what a call says of itself; NCCL's own are shorter.
_WORDS = 256


def recognises(document: object) -> bool:
    """Whether a JSON document says how far operations have come."""
    return isinstance(document, dict) and document.get("schema") == SCHEMA


def written(communicators: Iterable[CollectiveProgress]) -> dict[str, Any]:
    """The document that `read` reads."""
    rows = [{**asdict(one), "communicator": f"{one.communicator:016x}"} for one in communicators]
    return {"schema": SCHEMA, "progress": rows}


def read(document: object, limits: Limits = DEFAULTS) -> tuple[CollectiveProgress, ...]:
    """The communicators of a document; raises UnreadableEvidence where something is no number that a ring can hold."""
    if not recognises(document):
        raise UnreadableEvidence(f"not {SCHEMA}: its schema is another one", code="wrong-schema")
    return tuple(_communicator(one, limits) for one in _rows(_table(document), "progress", _COMMUNICATORS))


def _communicator(row: Mapping[str, Any], limits: Limits) -> CollectiveProgress:
    name = text_of(row.get("communicator"), limits)
    try:
        number = int(name[:17], 16)
    except ValueError:
        raise UnreadableEvidence(
            f"a communicator is called {name[:40]!r}, which is no hexadecimal number", code="wrong-schema"
        ) from None
    rank, ranks = _count(row, "rank"), _count(row, "ranks")
    if not 0 <= rank < ranks <= MAX_RANK + 1 or not 0 <= number < 1 << 64:
        raise UnreadableEvidence(f"communicator {name[:17]}: rank {rank} of {ranks}", code="wrong-schema")
    last = row.get("last")
    return CollectiveProgress(
        communicator=number,
        name=_words(row.get("name"), limits),
        rank=rank,
        ranks=ranks,
        nodes=_count(row, "nodes"),
        ended=row.get("ended") is True,
        collectives=_count(row, "collectives"),
        point_to_points=_count(row, "point_to_points"),
        launched=_count(row, "launched"),
        started=_count(row, "started"),
        finished=_count(row, "finished"),
        left_out=_count(row, "left_out"),
        idle_s=_seconds(row, "idle_s") if row.get("idle_s") is not None else None,
        last=_call(last, limits) if last is not None else None,
        sent=_moved(row.get("sent")),
        received=_moved(row.get("received")),
        in_flight=tuple(_operation(one, limits) for one in _rows(row, "in_flight", _IN_FLIGHT)),
    )


def _operation(row: Mapping[str, Any], limits: Limits) -> Operation:
    try:
        phase = Phase(_words(row.get("phase"), limits))
    except ValueError:
        raise UnreadableEvidence(
            f"an operation is {_words(row.get('phase'), limits)!r}, which is no phase", code="wrong-schema"
        ) from None
    return Operation(
        call=_call(row.get("call"), limits),
        order=_count(row, "order"),
        phase=phase,
        age_s=_seconds(row, "age_s"),
        idle_s=_seconds(row, "idle_s"),
        kernels_running=_count(row, "kernels_running"),
        transfers=tuple(map(_transfer, _rows(row, "transfers", _TRANSFERS))),
    )


def _transfer(row: Mapping[str, Any]) -> Transfer:
    steps = tuple(_count(row, name) for name in ("done", "transmitted", "ready", "posted"))
    if list(steps) != sorted(steps):
        raise UnreadableEvidence(
            f"a transfer has {steps[0]} steps done of {steps[3]} posted, out of order", code="wrong-schema"
        )
    done, transmitted, ready, posted = steps
    return Transfer(
        channel=_count(row, "channel"), peer=_signed(row, "peer"), sends=row.get("sends") is True,
        steps=_count(row, "steps"), posted=posted, ready=ready, transmitted=transmitted, done=done,
        bytes=_count(row, "bytes"), idle_s=_seconds(row, "idle_s"),
    )  # fmt: skip


def _call(value: object, limits: Limits) -> NcclCall:
    row = _table(value)
    return NcclCall(
        function=_words(row.get("function"), limits), datatype=_words(row.get("datatype"), limits),
        count=_count(row, "count"), sequence=_count(row, "sequence"), algorithm=_words(row.get("algorithm"), limits),
        protocol=_words(row.get("protocol"), limits), channels=_count(row, "channels"), peer=_signed(row, "peer"),
        collective=row.get("collective") is True,
    )  # fmt: skip


def _moved(value: object) -> Moved:
    row = _table(value)
    return Moved(**{field.name: _count(row, field.name) for field in fields(Moved)})


def _rows(table: Mapping[str, Any], name: str, most: int) -> list[Mapping[str, Any]]:
    rows = table.get(name)
    if not isinstance(rows, list) or len(rows) > most:
        raise UnreadableEvidence(f"{name}: no list of up to {most}", code="wrong-schema")
    return [_table(one) for one in rows]


def _table(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableEvidence("a list or a value where an object belongs", code="wrong-schema")
    return value


def _signed(row: Mapping[str, Any], name: str) -> int:
    number = int_of(row.get(name))
    if number is None:
        raise UnreadableEvidence(f"{name} is no whole number", code="wrong-schema")
    return number


def _count(row: Mapping[str, Any], name: str) -> int:
    number = _signed(row, name)
    if number < 0:
        raise UnreadableEvidence(f"{name} is {number}", code="wrong-schema")
    return number


def _seconds(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12 or math.isnan(value):
        raise UnreadableEvidence(f"{name} is no number of seconds", code="wrong-schema")
    return float(value)


def _words(value: object, limits: Limits) -> str:
    return text_of(value, limits)[:_WORDS]
