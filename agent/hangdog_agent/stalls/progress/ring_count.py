"""Counts what the busiest communicator of a process has done, by its ring; only this and layout run with a user's rights."""

import os

from hangdog_agent.capture import profiler_layout as layout

#: Of a communicator: its counts of collectives, messages, launched, started and finished operations, and where steps are counted.
_NUMBER, _OPERATIONS, _STEPS = 5, slice(9, 14), (slice(21, 27), slice(27, 33))


def counted(handle: int) -> tuple[int, int] | None:
    """The number of the busiest communicator that lives, and how far it has come; None where no ring is, or none lives.

    A communicator that is written at this moment is left out. Raises OSError.

    The one that has begun more operations than all others is that of the training. A small one, which other threads use,
    may make progress while the training hangs.
    """
    best = _busiest(handle)
    return (best[2], best[1]) if best is not None else None


def oldest_in_flight(handle: int, now_ns: int) -> tuple[int, float] | None:
    """The order of the busiest communicator's oldest operation in flight, and its age in seconds; None where it has none.

    `now_ns` is CLOCK_MONOTONIC. An operation that is written at this moment is left out. Raises OSError.
    """
    best = _busiest(handle)
    if best is None:
        return None
    table = os.pread(handle, layout.OPS * layout.OP.size, layout.AT_OPS)
    ages = []
    for at in range(0, len(table) - layout.OP.size + 1, layout.OP.size):
        if table[at + 8] != layout.LIVE or table[at] & 1:
            continue
        _, state, place, order, _, _, _, enqueued_at = layout.OP.unpack_from(table, at)[:8]
        if state == layout.LIVE and place == best[3]:
            ages.append((order, max(0, now_ns - enqueued_at) / 1e9))
    return min(ages, default=None)


def _busiest(handle: int) -> tuple[int, int, int, int] | None:
    """Of the busiest communicator its operations, how far it has come, its number and its place."""
    header = os.pread(handle, layout.HEADER.size, 0)
    if len(header) < layout.HEADER.size:
        return None
    magic, version, size, *_ = layout.HEADER.unpack(header)
    if (magic, version, size) != (layout.MAGIC, layout.VERSION, layout.SIZE):
        return None
    table = os.pread(handle, layout.COMMS * layout.COMM.size, layout.AT_COMMS)
    best: tuple[int, int, int, int] | None = None
    for at in range(0, len(table) - layout.COMM.size + 1, layout.COMM.size):
        if table[at] & 1 or int.from_bytes(table[at + 8 : at + 12], "little") != layout.LIVE:
            continue
        fields = layout.COMM.unpack_from(table, at)
        operations = fields[_OPERATIONS]
        moved = sum(operations) + sum(sum(fields[each]) for each in _STEPS)
        found = operations[0] + operations[1], moved, fields[_NUMBER], at // layout.COMM.size
        best = max(best or (0, 0, 0, 0), found)
    return best
