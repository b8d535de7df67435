"""Counts of logs that name no process group: comparable where they are near each other, else of different groups."""

from collections.abc import Sequence
from dataclasses import replace

from hangdog_models.collectives import RankCounters
from hangdog_models.reading.logs.log_counters import KEPT
from hangdog_models.reading.logs.watchdog import ONLY


def comparable(records: Sequence[RankCounters]) -> list[RankCounters]:
    """The records, without the counts of the group that no log names where ranks lie too far apart for one group."""
    done = [record.completed[ONLY] for record in records if ONLY in record.completed]
    if not done or max(done) - min(done) <= KEPT:
        return list(records)
    return [_without(record) for record in records]


def _without(record: RankCounters) -> RankCounters:
    def others(counts: dict[str, int]) -> dict[str, int]:
        return {group: number for group, number in counts.items() if group != ONLY}

    return replace(
        record,
        enqueued=others(record.enqueued),
        started=others(record.started),
        completed=others(record.completed),
        entries=tuple(entry for entry in record.entries if entry.group != ONLY),
    )
