"""Gathers from single lines what a rank counted, until it is put together as RankCounters."""

from collections import deque
from dataclasses import dataclass, field

from hangdog_models.collectives import CollectiveRecord, RankCounters
from hangdog_models.ranks import Rank

#: Operations kept for each group: as far as two ranks' last ones may lie apart and still be compared.
KEPT = 64


@dataclass(slots=True)
class LogCounters:
    """What one rank counted so far, by group; counters only rise."""

    source: str
    enqueued: dict[str, int] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    completed: dict[str, int] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)
    entries: dict[str, deque[CollectiveRecord]] = field(default_factory=dict)
    least_sizes: dict[str, int] = field(default_factory=dict)

    def add(self, record: CollectiveRecord) -> None:
        """An operation that the rank enqueued; the same one twice is one."""
        kept = self.entries.setdefault(record.group, deque(maxlen=KEPT))
        if not any(k.sequence == record.sequence and k.operation == record.operation for k in kept):
            kept.append(record)
        if not record.p2p:
            raise_to(self.enqueued, record.group, record.sequence)

    def put_together(self, rank: Rank) -> RankCounters:
        entries = tuple(record for kept in self.entries.values() for record in kept)
        return RankCounters(
            rank, self.enqueued, self.completed, entries, {}, self.descriptions, self.started, self.source,
            least_sizes=self.least_sizes,
        )  # fmt: skip


def raise_to(counts: dict[str, int], group: str, number: int | None) -> None:
    """Notes a count, unless a higher one is known."""
    if number is not None:
        counts[group] = max(counts.get(group, -1), number)
