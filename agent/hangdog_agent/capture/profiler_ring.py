"""Reads the ring that hangdog's NCCL profiler plug-in keeps: how far each collective of a process has come.

The ring belongs to the trainer's user, so any byte of it may be anything.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

from hangdog_agent.capture import profiler_layout as layout
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.progress.collective_progress import CollectiveProgress, Moved, NcclCall, Operation, Phase, Transfer
from hangdog_models.reading.printable import printable

#: What the plug-in writes for a transfer whose operation it no longer knows.
_NO_ORDER = 2**64 - 1

#: Answers the bytes of a ring at an offset: fewer where it ends.
Fetch = Callable[[int, int], bytes]


def parse(fetch: Fetch, now_ns: int) -> tuple[CollectiveProgress, ...]:
    """The communicators of a ring, oldest first; `now_ns` is CLOCK_MONOTONIC. Raises UnreadableEvidence."""
    header = fetch(0, layout.HEADER.size)
    if len(header) < layout.HEADER.size:
        raise UnreadableEvidence(
            f"{len(header)} bytes are no ring of the profiler plug-in", code="profiler-data-unreadable"
        )
    magic, version, size, *places = layout.HEADER.unpack(header)[:6]
    if magic != layout.MAGIC:
        raise UnreadableEvidence(
            "no ring of the profiler plug-in, or one that is not begun", code="profiler-data-unreadable"
        )
    if version != layout.VERSION:
        raise UnreadableEvidence(
            f"a ring of version {version}; this agent reads version {layout.VERSION}", code="profiler-data-unreadable"
        )
    if (size, *places) != (layout.SIZE, layout.COMMS, layout.OPS, layout.FLOWS):
        raise UnreadableEvidence(
            f"a ring of version {layout.VERSION} says that it has {size} bytes", code="profiler-data-unreadable"
        )
    flows = list(_records(fetch, layout.AT_FLOWS, layout.FLOW, layout.FLOWS, (layout.LIVE,)))
    operations = list(_records(fetch, layout.AT_OPS, layout.OP, layout.OPS, (layout.LIVE,)))
    found = []
    for place, fields in _records(fetch, layout.AT_COMMS, layout.COMM, layout.COMMS, (layout.LIVE, layout.ENDED)):
        transfers = _transfers([each for _, each in flows if each[2] == place], now_ns)
        own = sorted((each for _, each in operations if each[2] == place), key=lambda each: int(each[3]))
        in_flight = tuple(_operation(each, transfers.get(each[3], ()), now_ns) for each in own)
        last = _whole(fetch, layout.AT_COMMS + place * layout.COMM.size + layout.AT_LAST, layout.LAST)
        if (read := _progress(fields, last, in_flight, now_ns)) is not None:
            found.append((fields[6], read))
    return tuple(read for _, read in sorted(found, key=lambda each: int(each[0])))


def _records(
    fetch: Fetch, at: int, form: struct.Struct, places: int, states: tuple[int, ...]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Those records in one of the states, each as a whole; one that is being written all the time is left out."""
    table = fetch(at, places * form.size)
    for place in range(len(table) // form.size):
        state = int.from_bytes(table[place * form.size + 8 :][:4], "little")
        if state not in states:
            continue
        fields = _whole(fetch, at + place * form.size, form)
        if fields is not None and fields[1] in states:
            yield place, fields


def _whole(fetch: Fetch, at: int, form: struct.Struct) -> tuple[Any, ...] | None:
    """A record that nobody wrote while it was read: its first number counts the writes, and is odd during one."""
    for _ in range(layout.TRIES):
        before, data, after = fetch(at, 8), fetch(at, form.size), fetch(at, 8)
        if len(data) == form.size and before == data[:8] == after and not data[0] & 1:
            return form.unpack(data)
    return None


def _transfers(flows: list[tuple[Any, ...]], now_ns: int) -> dict[int, tuple[Transfer, ...]]:
    """Transfers by the order of their operation, by channel."""
    found: dict[int, list[Transfer]] = {}
    for fields in flows:
        order, _, moved_at, size, channel, peer, steps, _, sends, posted, ready, transmitted, done = fields[3:]
        if order == _NO_ORDER or not done <= transmitted <= ready <= posted:
            continue
        read = Transfer(
            channel, peer, bool(sends), steps, posted, ready, transmitted, done, size, _since(moved_at, now_ns) or 0.0
        )
        found.setdefault(order, []).append(read)
    return {
        order: tuple(sorted(each, key=lambda one: (one.channel, not one.sends, one.peer)))
        for order, each in found.items()
    }


def _operation(fields: tuple[Any, ...], transfers: tuple[Transfer, ...], now_ns: int) -> Operation:
    order, _, sequence, count, enqueued_at, launched_at, _, moved_at, started, ended, _, _ = fields[3:15]
    idle = [_since(max(moved_at, launched_at), now_ns) or 0.0, *(each.idle_s for each in transfers)]
    if not started:
        phase = Phase.LAUNCHED if launched_at else Phase.ENQUEUED
    else:
        phase = Phase.RUNNING if started > ended or transfers else Phase.ENDED
    return Operation(
        call=_call(fields[15:], count, sequence),
        order=order,
        phase=phase,
        age_s=_since(enqueued_at, now_ns) or 0.0,
        idle_s=min(idle),
        kernels_running=max(0, started - ended),
        transfers=transfers,
    )


def _progress(
    fields: tuple[Any, ...], last: tuple[Any, ...] | None, in_flight: tuple[Operation, ...], now_ns: int
) -> CollectiveProgress | None:
    _, state, rank, ranks, nodes, communicator, _, _, name = fields[:9]
    collectives, p2ps, launched, started, finished, left_out, _, _, enqueued_at, _, _, _ = fields[9:21]
    if not 0 <= rank < ranks:
        return None  # nothing that a communicator can be
    return CollectiveProgress(
        communicator=communicator,
        name=_text(name),
        rank=rank,
        ranks=ranks,
        nodes=nodes,
        ended=state == layout.ENDED,
        collectives=collectives,
        point_to_points=p2ps,
        launched=launched,
        started=started,
        finished=finished,
        left_out=left_out,
        idle_s=_since(enqueued_at, now_ns),
        last=_call(last[4:], last[3], last[2]) if last is not None and last[0] and collectives + p2ps else None,
        sent=Moved(*fields[21:27]),
        received=Moved(*fields[27:33]),
        in_flight=() if state == layout.ENDED else in_flight,
    )


def _call(what: tuple[Any, ...], count: int, sequence: int) -> NcclCall:
    peer, channels, kind, function, datatype, algorithm, protocol = what
    return NcclCall(
        function=_text(function),
        datatype=_text(datatype),
        count=count,
        sequence=sequence,
        algorithm=_text(algorithm),
        protocol=_text(protocol),
        channels=channels,
        peer=peer,
        collective=kind == 1,
    )


def _since(moment: int, now_ns: int) -> float | None:
    """Seconds since a moment; None where it never was."""
    return max(0, now_ns - moment) / 1e9 if moment else None


def _text(data: bytes) -> str:
    return printable(data.partition(b"\0")[0].decode("ascii", "backslashreplace"), len(data) * 4)
