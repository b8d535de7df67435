"""How long a rank's other operations took between two of one group: reckoned while the whole ring is at hand."""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite

from hangdog_models.collectives import COALESCED, P2P, CollectiveRecord

#: Longer than any operation that completes: PyTorch's watchdog gives up after ten minutes unless told otherwise.
_MOST_MS = 24 * 3600 * 1000.0

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


def with_times_apart(records: Iterable[CollectiveRecord]) -> tuple[CollectiveRecord, ...]:
    """The records, oldest first, with `apart_ns` of every timed collective whose predecessor is among them.

    A ring holds thousands of operations and a snapshot keeps few of each group, so the sums are taken before they go. The
    sends and receives of a batch have no times of their own; the entry that ends the batch has. A send by itself lies open
    until somebody receives, and its rank goes on meanwhile: it counts for nothing.
    """
    totals: dict[str, int] = {}
    last: dict[str, tuple[int, dict[str, int]]] = {}
    found = []
    for record in records:
        group, p2p = record.group, record.p2p or record.operation.endswith(COALESCED)
        if not p2p:
            before = last.get(group)
            if record.took_ns and before is not None and before[0] == record.sequence - 1:
                since = ((name, total - before[1].get(name, 0)) for name, total in totals.items() if name != group)
                record = replace(record, apart_ns=tuple((name, took) for name, took in since if took))
            last[group] = (record.sequence, dict(totals))
        if record.took_ns and not (record.p2p and _SEND in record.operation):
            name = f"{group}{P2P}" if p2p else group
            totals[name] = totals.get(name, 0) + record.took_ns
        found.append(record)
    return tuple(found)
