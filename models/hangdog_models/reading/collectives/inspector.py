"""Reads what NCCL Inspector dumps, one file a process (`<host>-pid<PID>.log`): JSON objects, each of an operation that completed.

Formats v4.0 to v4.2 (NCCL 2.28 to 2.31) and RCCL's. An operation that hangs never appears. v4.0 writes of each communicator
the last one in each interval only, later ones write all that fit. Numbers count each kind of operation by itself
(`comm->seqNumber[func]`), and ranks are those inside the communicator.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from hangdog_models.collectives import INSPECTOR, CollectiveRecord, RankCounters
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.collectives.flight_recorder import recent
from hangdog_models.reading.collectives.recorded_times import took_ns
from hangdog_models.reading.json_document import check_size, int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits

_HEAD = re.compile(r'"inspector_output_format_version"\s{0,8}:')
_OBJECT = re.compile(r"(?m)^[ \t]{0,8}(?=\{)")
#: Objects that are cut off or damaged, after which a file is given up; a process that was killed leaves one.
_BROKEN = 100
#: Kinds of operation of all communicators of one process; a rank of the largest jobs has some tens of communicators.
_MOST_GROUPS = 4_096
#: How the host's clock timed an operation that the device may have begun much later.
_BY_HOST = "collective_cpu"


@dataclass(frozen=True, slots=True)
class Place:
    """A rank inside a communicator of `size` members."""

    communicator: str
    number: int
    size: int


@dataclass(frozen=True, slots=True)
class InspectedRank:
    """What one process dumped of one device: `largest` is where it stands in its largest communicator.

    `counters` carry that number for a rank until somebody places it; `places` maps each group of theirs to its communicator.
    """

    host: str
    pid: int | None
    largest: Place
    counters: RankCounters
    places: Mapping[str, Place]


@dataclass(slots=True)
class _InspectorDump:
    """The operations of one file by communicator, and who wrote it."""

    host: str = ""
    pid: int | None = None
    operations: dict[Place, list[tuple[int, CollectiveRecord]]] = field(default_factory=dict)


def recognises(head: str) -> bool:
    """Whether a text begins like a dump."""
    return _HEAD.search(head) is not None


def read(text: str, limits: Limits = DEFAULTS) -> tuple[InspectedRank, ...]:
    """The ranks that a file tells of: one, unless a process drives several devices; raises UnreadableEvidence.

    Of a process with several devices only the largest communicator is read: whose the others are, nothing tells.
    """
    check_size(text, limits)
    dump = _InspectorDump()
    for position, document in enumerate(documents(text)):
        _take(dump, position, document, limits)
    if not dump.operations:
        raise UnreadableEvidence(
            "not a dump of NCCL Inspector: it names no operation that completed", code="damaged-nccl-report"
        )
    top = max(dump.operations, key=lambda place: (place.size, place.communicator))
    devices = [place for place in dump.operations if (place.communicator, place.size) == (top.communicator, top.size)]
    if len(devices) > 1:
        return tuple(_rank(dump, device, (device,)) for device in devices)
    return (_rank(dump, top, tuple(dump.operations)),)


def documents(text: str) -> Iterator[Mapping[str, object]]:
    """The objects of a text, one after the other, without what is cut off or damaged."""
    decoder, at, broken = json.JSONDecoder(), 0, 0
    while broken < _BROKEN and (found := _OBJECT.search(text, at)):
        try:
            document, at = decoder.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            at, broken = found.end() + 1, broken + 1
            continue
        if isinstance(document, dict):
            yield document


def _take(dump: _InspectorDump, position: int, document: Mapping[str, object], limits: Limits) -> None:
    header, metadata, performance = (table(document.get(key)) for key in ("header", "metadata", "coll_perf"))
    name, number, size = text_of(header.get("id"), limits), int_of(header.get("rank")), int_of(header.get("n_ranks"))
    operation, sequence = text_of(performance.get("coll"), limits), int_of(performance.get("coll_sn"))
    if not name or number is None or size is None or not operation or sequence is None:
        return
    if not 0 <= number < size <= MAX_RANK or sequence < 0:
        return
    dump.host = dump.host or text_of(metadata.get("hostname"), limits)
    dump.pid = int_of(metadata.get("pid")) if dump.pid is None else dump.pid
    place = Place(name, number, size)
    if place in dump.operations or len(dump.operations) < _MOST_GROUPS:
        record = _record(f"{name} {operation}", operation, sequence, performance, table(metadata))
        dump.operations.setdefault(place, []).append((position, record))


def _record(
    group: str, operation: str, sequence: int, performance: Mapping[str, object], metadata: Mapping[str, object]
) -> CollectiveRecord:
    """One operation; where the verbose form does not tell when it was launched, the dump's time less its length is taken."""
    micros = int_of(_whole(performance.get("coll_exec_time_us"))) or 0
    dumped = int_of(metadata.get("dump_timestamp_us")) or 0
    launched = int_of(table(performance.get("event_trace_ts")).get("coll_start_ts")) or max(0, dumped - micros)
    timed = performance.get("coll_timing_source") != _BY_HOST
    return CollectiveRecord(
        group, sequence, f"nccl:{operation.lower()}", True, started=True,
        input_sizes=((size,),) if (size := int_of(performance.get("coll_msg_size_bytes"))) is not None else (),
        created_ns=launched * 1000, took_ns=took_ns(micros / 1000) if timed else 0,
    )  # fmt: skip


def _rank(dump: _InspectorDump, largest: Place, places: Sequence[Place]) -> InspectedRank:
    ordered = sorted((entry for place in places for entry in dump.operations[place]), key=lambda entry: entry[0])
    records = [record for _, record in ordered]
    completed: dict[str, int] = {}
    for record in records:
        completed[record.group] = max(completed.get(record.group, -1), record.sequence)
    counters = RankCounters(
        Rank(largest.number), dict(completed), completed, _without_gaps(records), {}, {}, source=INSPECTOR
    )
    of = {record.group: place for place in places for _, record in dump.operations[place]}
    return InspectedRank(dump.host, dump.pid, largest, counters, of)


def _without_gaps(records: Sequence[CollectiveRecord]) -> tuple[CollectiveRecord, ...]:
    """The newest records, without the times of others beside them where some of these are missing: they are no whole sum."""
    last: dict[str, int] = {}
    lacking = [0] * (len(records) + 1)
    since: dict[tuple[str, int], int] = {}  # where the operation before stands
    for position, record in enumerate(records):
        before = last.get(record.group)
        last[record.group] = position
        if before is None:
            continue
        since[record.group, record.sequence] = before
        if record.sequence > records[before].sequence + 1:
            lacking[before + 1] += 1
            lacking[position + 1] -= 1
    gaps = [0, *accumulate(1 if inside else 0 for inside in accumulate(lacking[:-1]))]
    whole = {
        (record.group, record.sequence)
        for position, record in enumerate(records)
        if (at := since.get((record.group, record.sequence))) is not None and gaps[position + 1] == gaps[at + 1]
    }
    kept = recent(records)
    return tuple(one if (one.group, one.sequence) in whole else replace(one, apart_ns=None) for one in kept)


def _whole(value: object) -> object:
    """RCCL writes microseconds as 5663.0."""
    return round(value) if isinstance(value, float) and abs(value) < 1e15 else value


def table(value: object) -> Mapping[str, object]:
    """An object in an object; an empty one where there is none."""
    return value if isinstance(value, dict) else {}
