"""How long a rank's other operations took between two of one group: reckoned while the whole ring is at hand."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from math import isfinite

from hangdog_models.collectives import COALESCED, P2P, CollectiveRecord

#: Longer than any operation that completes: PyTorch's watchdog gives up after ten minutes unless told otherwise.
_MOST_MS = 24 * 3600 * 1000.0

#: A rank is in some twenty groups, of all dimensions and their products. Of more than these no times apart are kept: sums of
#: each group beside each other grow with the square, and a strange dump may name thousands.
_MOST_GROUPS = 64

#: How the recorder names a send: `nccl:send 3->4`.
_SEND = ":send "


def took_ns(duration_ms: object) -> int:
    """A recorded `duration_ms` in nanoseconds, 0 (not known) for whatever is no duration an operation can have.

    It is there where PyTorch timed operations (TORCH_NCCL_ENABLE_TIMING) and its watchdog has seen them end. The
    discovered times beside it are no substitute: they are the moments at which the watchdog looked, 100 ms apart.
    """
    if isinstance(duration_ms, bool) or not isinstance(duration_ms, int | float):
        return 0
    return round(duration_ms * 1e6) if 0 < duration_ms <= _MOST_MS and isfinite(duration_ms) else 0


def with_times_apart(records: Sequence[CollectiveRecord], kept: Container[int]) -> Iterator[CollectiveRecord]:
    """The records at the positions `kept`, oldest first, each timed collective with its `apart_ns` where its predecessor is in the ring.

    A ring holds thousands of operations and a snapshot keeps few of each group, so the sums are taken before they go. The
    sends and receives of a batch have no times of their own; the entry that ends the batch has. A send by itself lies open
    until somebody receives, and its rank goes on meanwhile: it counts for nothing.
    """
    summed = len({record.group for record in records}) <= _MOST_GROUPS
    totals: dict[str, int] = {}
    last: dict[str, tuple[int, dict[str, int]]] = {}
    for position, record in enumerate(records):
        group, p2p, now = record.group, record.p2p or record.operation.endswith(COALESCED), record
        if summed and not p2p:
            before = last.get(group)
            if position in kept and record.took_ns and before is not None and before[0] == record.sequence - 1:
                since = ((name, total - before[1].get(name, 0)) for name, total in totals.items() if name != group)
                now = replace(record, apart_ns=tuple((name, took) for name, took in since if took))
            last[group] = (record.sequence, dict(totals))
        if summed and record.took_ns and not (record.p2p and _SEND in record.operation):
            name = f"{group}{P2P}" if p2p else group
            totals[name] = totals.get(name, 0) + record.took_ns
        if position in kept:
            yield now
