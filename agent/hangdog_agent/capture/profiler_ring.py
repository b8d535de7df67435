"""Reads the ring that hangdog's NCCL profiler plug-in keeps: how far each collective of a process has come.

The ring belongs to the trainer's user, so any byte of it may be anything. The layout is that of agent/profiler/profiler.c.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.printable import printable

VERSION = 1
_MAGIC = b"HDNCCLPR"
_COMMS, _OPS, _FLOWS = 64, 768, 512
_HEADER = struct.Struct("<8sIIIIII QQQQ")
_COMM = struct.Struct("<QIiii QQQ 64s 8Q 4Q 6Q 6Q 208x")
#: The last operation of a communicator, within its record.
_LAST = struct.Struct("<QQQQ i H B x 16s 12s 20s 12s")
_AT_LAST = 328
_OP = struct.Struct("<QII 4Q 4Q 4I i H B x 16s 12s 20s 12s 28x")
_FLOW = struct.Struct("<QII QQQQ 5i 4I 44x")
_AT_COMMS = 4096
_AT_OPS = _AT_COMMS + _COMMS * _COMM.size
_AT_FLOWS = _AT_OPS + _OPS * _OP.size
#: Bytes of a ring.
SIZE = _AT_FLOWS + _FLOWS * _FLOW.size
_LIVE, _ENDED = 2, 3
#: Times that a record is read again that changed while it was read: writing its identity takes less than a microsecond.
_TRIES = 8
#: What the plug-in writes for a transfer whose operation it no longer knows.
_NO_ORDER = 2**64 - 1

#: Answers the bytes of a ring at an offset: fewer where it ends.
Fetch = Callable[[int, int], bytes]


class Phase(StrEnum):
    """How far an operation has come on this rank."""

    #: The host has begun it, and has not launched its kernel.
    ENQUEUED = "enqueued"
    #: It is launched, and no kernel of it has begun: the GPU does other work. Its transfers may be posted.
    LAUNCHED = "launched"
    RUNNING = "running"
    #: All of its kernels that began have ended. NCCL stated more channels than it used, or an event was lost.
    ENDED = "ended"


class Awaited(StrEnum):
    """What the oldest step of a transfer waits for."""

    #: A sender: data that the GPU has not written yet. A receiver: that the GPU takes what has come.
    GPU = "the GPU"
    #: A sender has data; its peer gives it no room.
    CREDIT = "room at the receiver"
    #: A sender gave it to the network, which has not confirmed it.
    NETWORK = "the network"
    #: A receiver: data of its peer.
    DATA = "the sender's data"
    #: A receiver: that what has come is visible to the GPU.
    FLUSH = "a flush"
    #: Nothing is under way: all steps so far are done, or the first has not begun.
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Transfer:
    """What the proxy thread moves for one operation on one channel from or to one peer, counted in steps.

    `ready`: a sender's GPU has written it, or a receiver has got it. `transmitted`: the network has it, or it is flushed.
    """

    channel: int
    peer: int
    sends: bool
    steps: int
    posted: int
    ready: int
    transmitted: int
    done: int
    bytes: int
    idle_s: float

    @property
    def awaits(self) -> Awaited:
        if self.transmitted > self.done:
            return Awaited.NETWORK if self.sends else Awaited.GPU
        if self.ready > self.done:
            return Awaited.CREDIT if self.sends else Awaited.FLUSH
        if self.posted > self.done:
            return Awaited.GPU if self.sends else Awaited.DATA
        return Awaited.NOTHING


@dataclass(frozen=True, slots=True)
class NcclCall:
    """What an operation was called with. `peer` is a collective's root; `sequence` is NCCL's own, for each function."""

    function: str
    datatype: str
    count: int
    sequence: int
    algorithm: str
    protocol: str
    channels: int
    peer: int
    collective: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation in flight: `order` counts those of its communicator from 0 on."""

    call: NcclCall
    order: int
    phase: Phase
    age_s: float
    #: Since its last event.
    idle_s: float
    kernels_running: int
    transfers: tuple[Transfer, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """Steps and bytes of all transfers of a communicator in one direction."""

    operations: int
    posted: int
    ready: int
    transmitted: int
    done: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CollectiveProgress:
    """How far the operations of one communicator have come on one rank of it. Counts begin with the communicator."""

    communicator: int
    name: str
    rank: int
    ranks: int
    nodes: int
    #: It was finalised or aborted.
    ended: bool
    collectives: int
    point_to_points: int
    launched: int
    started: int
    finished: int
    #: Operations that found no place in the ring: they are in no other count but the first two.
    left_out: int
    #: Since the last operation was enqueued; None before the first.
    idle_s: float | None
    #: What was enqueued last.
    last: NcclCall | None
    sent: Moved
    received: Moved
    in_flight: tuple[Operation, ...]


def parse(fetch: Fetch, now_ns: int) -> tuple[CollectiveProgress, ...]:
    """The communicators of a ring, oldest first; `now_ns` is CLOCK_MONOTONIC. Raises UnreadableEvidence."""
    header = fetch(0, _HEADER.size)
    if len(header) < _HEADER.size:
        raise UnreadableEvidence(f"{len(header)} bytes are no ring of the profiler plug-in")
    magic, version, size, *places = _HEADER.unpack(header)[:6]
    if magic != _MAGIC:
        raise UnreadableEvidence("no ring of the profiler plug-in, or one that is not begun")
    if version != VERSION:
        raise UnreadableEvidence(f"a ring of version {version}; this agent reads version {VERSION}")
    if (size, *places) != (SIZE, _COMMS, _OPS, _FLOWS):
        raise UnreadableEvidence(f"a ring of version {VERSION} says that it has {size} bytes")
    flows = list(_records(fetch, _AT_FLOWS, _FLOW, _FLOWS, (_LIVE,)))
    operations = list(_records(fetch, _AT_OPS, _OP, _OPS, (_LIVE,)))
    found = []
    for place, fields in _records(fetch, _AT_COMMS, _COMM, _COMMS, (_LIVE, _ENDED)):
        transfers = _transfers([each for _, each in flows if each[2] == place], now_ns)
        own = sorted((each for _, each in operations if each[2] == place), key=lambda each: int(each[3]))
        in_flight = tuple(_operation(each, transfers.get(each[3], ()), now_ns) for each in own)
        last = _whole(fetch, _AT_COMMS + place * _COMM.size + _AT_LAST, _LAST)
        if (read := _progress(fields, last, in_flight, now_ns)) is not None:
            found.append((fields[6], read))
    return tuple(read for _, read in sorted(found, key=lambda each: int(each[0])))


def _records(
    fetch: Fetch, at: int, layout: struct.Struct, places: int, states: tuple[int, ...]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Those records in one of the states, each as a whole; one that is being written all the time is left out."""
    table = fetch(at, places * layout.size)
    for place in range(len(table) // layout.size):
        state = int.from_bytes(table[place * layout.size + 8 :][:4], "little")
        if state not in states:
            continue
        fields = _whole(fetch, at + place * layout.size, layout)
        if fields is not None and fields[1] in states:
            yield place, fields


def _whole(fetch: Fetch, at: int, layout: struct.Struct) -> tuple[Any, ...] | None:
    """A record that nobody wrote while it was read: its first number counts the writes, and is odd during one."""
    for _ in range(_TRIES):
        before, data, after = fetch(at, 8), fetch(at, layout.size), fetch(at, 8)
        if len(data) == layout.size and before == data[:8] == after and not data[0] & 1:
            return layout.unpack(data)
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
        ended=state == _ENDED,
        collectives=collectives,
        point_to_points=p2ps,
        launched=launched,
        started=started,
        finished=finished,
        left_out=left_out,
        idle_s=_since(enqueued_at, now_ns),
        last=_call(last[4:], last[3], last[2]) if last is not None and collectives + p2ps else None,
        sent=Moved(*fields[21:27]),
        received=Moved(*fields[27:33]),
        in_flight=() if state == _ENDED else in_flight,
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
