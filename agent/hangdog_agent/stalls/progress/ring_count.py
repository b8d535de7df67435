"""Counts what a process has done by its ring, and what its device does; only this and layout run with a user's rights."""

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hangdog_agent.capture import profiler_layout as layout

#: The beginnings of records, which are read once a second: the rest of each takes as long again to unpack. Of a communicator
#: its number here, its own number, and the counts of collectives, messages, launched, started and finished operations.
_COMM = struct.Struct("<8x4x i 8x Q 16x 64x 5Q")
_OP, _FLOW = struct.Struct("<12x I Q 24x Q Q 16x II 16x 16s"), struct.Struct("<12x I Q 28x i 8x i 4I")
#: Where steps are counted.
_STEPS = slice(21, 33)
WAITING, BEHIND, SENDING = "waiting", "behind", "sending"


class CommunicatorCounts(NamedTuple):
    """What a communicator has counted; `rank` is this process's number in it."""

    rank: int
    number: int
    collectives: int
    messages: int
    launched: int
    started: int
    finished: int


class OperationSteps(NamedTuple):
    """An operation that has not finished. `communicator` is its place in the ring; `begun`: kernels of it began."""

    communicator: int
    order: int
    enqueued_at: int
    launched: bool
    begun: bool
    runs: bool
    function: bytes = b""


class TransferSteps(NamedTuple):
    """A transfer of an operation in flight: the steps that have come so far, each a part of the one before."""

    communicator: int
    order: int
    peer: int
    sends: bool
    posted: int
    ready: int
    transmitted: int
    done: int


class CommunicatorReading(NamedTuple):
    """How far one communicator has come on this rank: the operations it began, and all that it counted, as `moved`.

    `order` is how many collectives it has entered, None where there are none. `age_s` and `function` are of its oldest
    operation in flight. `completed_only`: of operations in flight nothing is known.
    """

    number: int
    name: str
    size: int
    operations: int
    order: int | None
    moved: int
    age_s: float | None
    function: str
    completed_only: bool = False


class DeviceReading(NamedTuple):
    """What the device does (WAITING, BEHIND or SENDING), and the transfer that shows it, if one does.

    `communicator` is a place in the ring, and `peer` a number in that communicator.
    """

    doing: str
    communicator: int = -1
    peer: int = -1


def reading(handle: int, now_ns: int, everything: bool = False) -> dict[str, object] | None:
    """What is counted of a ring, as JSON; None where no ring is, or no communicator lives. `now_ns` is CLOCK_MONOTONIC.

    - `number`, `moved`, `operations`: the busiest communicator, how far it has come, and how many operations it began.
    - `order`, `age_s`: its oldest operation in flight.
    - `device`: what the device does, the communicator that shows it, this rank's number in that, and the peer's.
    - `communicators`: each as `CommunicatorReading` has it, where `everything` is wanted.

    The busiest communicator has begun more operations than all others: it is that of the training. A small one, which other
    threads use, may make progress while the training hangs. Whatever is written at this moment is left out. Raises OSError.
    """
    table, communicators = _communicators(handle)
    if not communicators:
        return None
    operations, number, busiest = max(
        (one.collectives + one.messages, one.number, place) for place, one in communicators.items()
    )
    counts = communicators[busiest]
    steps = layout.COMM.unpack_from(table, busiest * layout.COMM.size)[_STEPS]
    moved = operations + counts.launched + counts.started + counts.finished + sum(steps)
    flight = list(_in_flight(handle, communicators))
    found: dict[str, object] = {"number": number, "moved": moved, "operations": operations}
    if oldest := min(((one.order, one.enqueued_at) for one in flight if one.communicator == busiest), default=None):
        found |= {"order": oldest[0], "age_s": max(0, now_ns - oldest[1]) / 1e9}
    # a communicator of whose kernels NCCL tells nothing shows no device as behind
    with_kernels = [one for one in flight if communicators[one.communicator].started]
    flows = list(_flows(handle)) if any(one.begun for one in with_kernels) else []
    if device := device_reading(with_kernels, flows):
        of = communicators.get(device.communicator)
        found["device"] = [device.doing, *((of.number, of.rank, device.peer) if of else (0, -1, -1))]
    if everything:
        found["communicators"] = list(communicator_readings(table, communicators, flight, now_ns))
    return found


def communicator_readings(
    table: bytes, communicators: Iterable[int], flight: Iterable[OperationSteps], now_ns: int
) -> Iterator[CommunicatorReading]:
    """Each communicator that lives, of a table that was read; what cannot be one is left out."""
    oldest: dict[int, OperationSteps] = {}
    for one in flight:
        if one.communicator not in oldest or one.order < oldest[one.communicator].order:
            oldest[one.communicator] = one
    for place in communicators:
        fields = layout.COMM.unpack_from(table, place * layout.COMM.size)
        rank, size, number, name = fields[2], fields[3], fields[5], fields[8]
        collectives, messages, launched, started, finished, left_out = fields[9:15]
        if not 0 <= rank < size:
            continue
        operations = collectives + messages
        moved = operations + launched + started + finished + sum(fields[_STEPS])
        old = oldest.get(place)
        age_s = round(max(0, now_ns - old.enqueued_at) / 1e9, 1) if old else None
        yield CommunicatorReading(
            number, _text(name), size, operations, _order(collectives, messages, started, left_out), moved, age_s,
            _text(old.function) if old else "",
        )  # fmt: skip


def _order(collectives: int, messages: int, started: int, left_out: int) -> int | None:
    """How many collectives a rank has entered: as its device has begun them, where that is told, else as its host has.

    Each rank has messages of its own. So where the device has begun some operations, it is not known how many collectives.
    """
    if left_out or not collectives:
        return None
    if started and not messages:
        return started
    return collectives if started in (0, collectives + messages) else None


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("ascii", "backslashreplace")


def device_reading(flight: Iterable[OperationSteps], flows: Sequence[TransferSteps]) -> DeviceReading | None:
    """What a device does by its operations in flight and their transfers; None where it is in none and none is launched.

    It is behind if a collective is launched and it has begun none, or if all transfers wait for it alone. Where data that it
    sent is under way, the network may hold the others up. Else others hold it up (Mycroft, SOSP 2025, table 4).
    """
    flight = list(flight)
    begun = {(one.communicator, one.order): one.runs for one in flight if one.begun}
    own = [flow for flow in flows if (flow.communicator, flow.order) in begun and flow.posted > flow.done]
    if not own and not any(begun.values()):
        return DeviceReading(BEHIND) if any(one.launched and not one.begun for one in flight) else None
    if sent := [flow for flow in own if flow.sends and flow.transmitted > flow.done]:
        return DeviceReading(SENDING, sent[0].communicator, sent[0].peer)
    by_device = [flow for flow in own if _awaits_device(flow)]
    place = own[0].communicator if own else -1
    return DeviceReading(BEHIND if own and len(by_device) == len(own) else WAITING, place)


def _awaits_device(flow: TransferSteps) -> bool:
    """Whether the device has to write the next data that is sent, or to take what was received."""
    return flow.ready == flow.done if flow.sends else flow.transmitted > flow.done


def _communicators(handle: int) -> tuple[bytes, dict[int, CommunicatorCounts]]:
    """The table of communicators, and what each that lives has counted, by its place."""
    header = os.pread(handle, layout.HEADER.size, 0)
    if len(header) < layout.HEADER.size:
        return b"", {}
    magic, version, size, *_ = layout.HEADER.unpack(header)
    if (magic, version, size) != (layout.MAGIC, layout.VERSION, layout.SIZE):
        return b"", {}
    table = os.pread(handle, layout.COMMS * layout.COMM.size, layout.AT_COMMS)
    size = layout.COMM.size
    return table, {at // size: CommunicatorCounts(*_COMM.unpack_from(table, at)) for at in _living(table, size)}


def _in_flight(handle: int, communicators: Iterable[int]) -> Iterator[OperationSteps]:
    table = os.pread(handle, layout.OPS * layout.OP.size, layout.AT_OPS)
    for at in _living(table, layout.OP.size):
        place, order, enqueued_at, launched_at, started, ended, function = _OP.unpack_from(table, at)
        if place in communicators:
            yield OperationSteps(place, order, enqueued_at, bool(launched_at), bool(started), started > ended, function)


def _flows(handle: int) -> Iterator[TransferSteps]:
    table = os.pread(handle, layout.FLOWS * layout.FLOW.size, layout.AT_FLOWS)
    for at in _living(table, layout.FLOW.size):
        place, order, peer, sends, posted, ready, transmitted, done = _FLOW.unpack_from(table, at)
        if done <= transmitted <= ready <= posted:
            yield TransferSteps(place, order, peer, bool(sends), posted, ready, transmitted, done)


def _living(table: bytes, size: int) -> Iterator[int]:
    """Where the records of a table begin that live and that nobody writes at this moment."""
    states = table[8::size]  # the lowest byte of each
    place = states.find(layout.LIVE)
    while place >= 0:
        at = place * size
        if at + size <= len(table) and not table[at] & 1 and table[at + 9 : at + 12] == b"\0\0\0":
            yield at
        place = states.find(layout.LIVE, place + 1)
