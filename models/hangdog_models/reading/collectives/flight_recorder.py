"""Reads a PyTorch flight recorder dump, from its JSON or from a pickle already turned into plain data.

A dump may hold all operations or the active ones only; then `pg_status` alone tells what is complete.
The two writings differ: numbers of `pg_status` are texts in JSON, unknown times are 0 there and None in the pickle.
Gloo leaves every `state` at `scheduled` and lists no members; there `retired` says that an operation is done.
Versions 2.1 to 2.10 differ too: the first have one `seq_id` and a `pg_name`, sequence numbers may be texts, a single
data type stands without a list. Whether operations started is known only where PyTorch timed them (TORCH_NCCL_ENABLE_TIMING).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from hangdog_models.collectives import CollectiveRecord, RankCounters, counts_of
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.collectives.recorded_times import took_ns, with_times_apart
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits

#: No operation has so many tensors; more are a mistake or malice.
_MOST_SIZES = 4096
#: Nor a tensor so many dimensions: ATen counts them in 64 bits (`dim_bitset_size`). Thousands multiply to a number that Python
#: refuses to write.
_MOST_DIMENSIONS = 64
#: Finished operations kept for each group: as far as two ranks' last ones may lie apart and still be compared.
_DONE_KEPT = 64
#: What stands beside the entries, by version: one of them tells a dump from any other document with entries.
_BESIDE_ENTRIES = ("pg_config", "pg_status", "nccl_version", "comm_lib_version")


def recognises(document: object) -> bool:
    """Whether a document is a flight recorder dump."""
    return isinstance(document, dict) and "entries" in document and any(key in document for key in _BESIDE_ENTRIES)


def read(document: object, rank: Rank | None, limits: Limits = DEFAULTS) -> RankCounters:
    """The record of `rank`, or of the rank the dump itself names; raises UnreadableEvidence where neither is known."""
    if not recognises(document) or not isinstance(document, dict):
        raise UnreadableEvidence(
            "not a flight recorder dump: entries or pg_config are missing", code="damaged-flight-record"
        )
    whose = rank if rank is not None else _rank_inside(document)
    entries = document["entries"]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UnreadableEvidence(
            "not a flight recorder dump: its entries are no list of operations", code="damaged-flight-record"
        )
    statuses = tuple(_tables(document.get("pg_status")))
    timed = any(_started(entry) for entry in entries) or any(_ran_ahead(status) for _, status in statuses)
    records = tuple(_entry(entry, timed, limits) for entry in entries)
    enqueued, completed = counts_of(records)
    started: dict[str, int] = {}
    for record in records:
        if timed and record.started and not record.p2p:
            _raise_to(started, record.group, record.sequence)
    members, descriptions = _configured(document, limits)
    inside = {int_of(entry.get("pg_id")): record.group for entry, record in zip(entries, records, strict=True)}
    names = _names_of(tuple(number for number, _ in statuses), tuple(_config_names(document, limits)), inside)
    messages = {record.group for record in records if record.p2p}
    for number, status in statuses:
        group = names.get(int_of(number)) or (number if number not in names.values() else f"#{number}")
        if group in messages:
            continue  # the number of whatever came last there, a send or a collective, each of which has its own count
        _raise_to(enqueued, group, int_of(status.get("last_enqueued_collective")))
        _raise_to(completed, group, int_of(status.get("last_completed_collective")))
        if timed:  # else it stays -1 for ever and says nothing
            _raise_to(started, group, int_of(status.get("last_started_collective")))
    for entry, record in zip(entries, records, strict=True):
        descriptions.setdefault(record.group, _name(entry, 1, limits))
    kept = recent(records)
    return RankCounters(whose, enqueued, completed, kept, members, descriptions, started)


def recent(records: Sequence[CollectiveRecord]) -> tuple[CollectiveRecord, ...]:
    """What is under way, and the newest of what is done: a ring of thousands on each of thousands of ranks is too much."""
    left: dict[tuple[str, bool], int] = {}
    kept: set[int] = set()
    for position in range(len(records) - 1, -1, -1):
        record = records[position]
        group = (record.group, record.p2p)
        if record.done:
            left[group] = left.get(group, _DONE_KEPT) - 1
        if not record.done or left[group] >= 0:
            kept.add(position)
    return tuple(with_times_apart(records, kept))


def names_rank(document: object) -> bool:
    """Whether the dump itself tells whose it is."""
    return isinstance(document, dict) and int_of(document.get("rank")) is not None


def _rank_inside(document: Mapping[str, object]) -> Rank:
    rank = int_of(document.get("rank"))
    if rank is None or not 0 <= rank <= MAX_RANK:
        raise UnreadableEvidence(
            "a flight recorder dump without a rank in its name: call it rank<N>", code="unknown-rank"
        )
    return Rank(rank)


def _ran_ahead(status: Mapping[str, object]) -> bool:
    """Whether a group's numbers show that starts were timed: a last start beyond the last completion."""
    started, completed = int_of(status.get("last_started_collective")), int_of(status.get("last_completed_collective"))
    return started is not None and started > (-1 if completed is None else completed)


def _started(entry: Mapping[str, object]) -> bool:
    """Whether an operation was seen to run on the device."""
    return entry.get("state") == "started" or bool(int_of(entry.get("time_discovered_started_ns")))


def _entry(entry: Mapping[str, object], timed: bool, limits: Limits) -> CollectiveRecord:
    p2p = entry.get("is_p2p") is True
    sequence = int_of(entry.get("p2p_seq_id" if p2p else "collective_seq_id", entry.get("seq_id")))
    done = entry.get("retired") is True or entry.get("state") == "completed"
    created = int_of(entry.get("time_created_ns"))
    return CollectiveRecord(
        group=_name(entry, 0, limits) or str(int_of(entry.get("pg_id")) or 0),
        sequence=-1 if sequence is None else sequence,
        operation=text_of(entry.get("profiling_name"), limits),
        done=done,
        input_sizes=_sizes(entry.get("input_sizes")),
        dtypes=_dtypes(entry.get("input_dtypes"), limits),
        p2p=p2p,
        started=True if done or _started(entry) else False if timed else None,
        output_sizes=_sizes(entry.get("output_sizes")),
        created_ns=created if created is not None and created > 0 else 0,
        took_ns=took_ns(entry.get("duration_ms")) if done else 0,
    )


def _name(entry: Mapping[str, object], at: int, limits: Limits) -> str:
    """Item `at` of (name, description)."""
    group = entry.get("process_group", entry.get("pg_name"))
    if isinstance(group, str):
        return text_of(group, limits) if at == 0 else ""
    return text_of(group[at], limits) if isinstance(group, list | tuple) and len(group) > at else ""


def _sizes(value: object) -> tuple[tuple[int, ...], ...]:
    tensors = value if isinstance(value, list | tuple) else ()
    if len(tensors) > _MOST_SIZES:
        raise UnreadableEvidence(f"an operation on {len(tensors)} tensors; {_MOST_SIZES} are read", code="too-many")
    most = max((len(tensor) for tensor in tensors if isinstance(tensor, list | tuple)), default=0)
    if most > _MOST_DIMENSIONS:
        raise UnreadableEvidence(f"a tensor of {most} dimensions; {_MOST_DIMENSIONS} are read", code="too-many")
    return tuple(tuple(_ints(tensor)) for tensor in tensors if isinstance(tensor, list | tuple))


def _dtypes(value: object, limits: Limits) -> tuple[str, ...]:
    """Type names; one text stands for one tensor (some writers do not make a list of it)."""
    items = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return tuple(text_of(item, limits) for item in items[:_MOST_SIZES])


def _ints(values: Iterable[object]) -> list[int]:
    return [number for number in map(int_of, values) if number is not None]


def _raise_to(counts: dict[str, int], group: str, number: int | None) -> None:
    if number is not None:
        counts[group] = max(counts.get(group, -1), number)


def _names_of(
    numbers: Sequence[str], names: Sequence[str], inside: Mapping[int | None, str]
) -> Mapping[int | None, str]:
    """The name of each group by the process's own number of it, by which `pg_status` goes.

    Entries tell both. Names and numbers are given out in one order, so where there are as many of the one as of the other
    they belong together as they ascend, unless an entry says otherwise.
    """
    counted, named = [int_of(number) for number in numbers], [int_of(name) for name in names]
    if len(counted) != len(named) or None in counted or None in named:
        return inside
    in_order: dict[int | None, str] = dict(
        zip(sorted(n for n in counted if n is not None), sorted(names, key=int), strict=True)
    )
    fits = all(in_order.get(number) == name for number, name in inside.items() if number is not None)
    return {**in_order, **inside} if fits else inside


def _config_names(document: Mapping[str, object], limits: Limits) -> Iterable[str]:
    for key, config in _tables(document.get("pg_config")):
        yield text_of(config.get("name"), limits) or text_of(key, limits)


def _tables(value: object) -> list[tuple[str, Mapping[str, object]]]:
    items = value.items() if isinstance(value, dict) else ()
    return [(str(key), inside) for key, inside in items if isinstance(inside, dict)]


def _configured(document: Mapping[str, object], limits: Limits) -> tuple[dict[str, tuple[Rank, ...]], dict[str, str]]:
    """Members and descriptions of the groups that `pg_config` names; gloo writes one nameless group without members."""
    members: dict[str, tuple[Rank, ...]] = {}
    descriptions: dict[str, str] = {}
    for group, (_, config) in zip(_config_names(document, limits), _tables(document.get("pg_config")), strict=True):
        ranks = config.get("ranks")
        inside = _listed(ranks) if isinstance(ranks, str) else _ranks(ranks) if isinstance(ranks, list) else ()
        if group and inside:
            members[group] = inside
        if group and text_of(config.get("desc"), limits):
            descriptions[group] = text_of(config.get("desc"), limits)
    return members, descriptions


@lru_cache(maxsize=64)
def _listed(text: str) -> tuple[Rank, ...]:
    """The ranks in a text. Every rank's dump lists all ranks of the world: one tuple serves them all."""
    return _ranks(re.findall(r"\d{1,9}", text))


def _ranks(numbers: Sequence[object]) -> tuple[Rank, ...]:
    return tuple(Rank(number) for number in sorted(set(_ints(numbers))) if 0 <= number <= MAX_RANK)
