"""Counts what a process has done by its ring, and what its device does; only this and layout run with a user's rights."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hangdog_agent.capture import profiler_layout as layout

#: Of a communicator: its counts of collectives, messages, launched, started and finished operations, and where steps are counted.
_NUMBER, _OPERATIONS, _STEPS = 5, slice(9, 14), (slice(21, 27), slice(27, 33))
WAITING, BEHIND, SENDING = "waiting", "behind", "sending"


class OperationSteps(NamedTuple):
    """An operation that has not finished. `communicator` is its place in the ring; `begun`: kernels of it began."""

    communicator: int
    order: int
    enqueued_at: int
    launched: bool
    begun: bool
    runs: bool


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


class DeviceReading(NamedTuple):
    """What the device does (WAITING, BEHIND or SENDING), and the transfer that shows it, if one does.

    `communicator` is a place in the ring, and `peer` a number in that communicator.
    """

    doing: str
    communicator: int = -1
    peer: int = -1


def reading(handle: int, now_ns: int) -> dict[str, object] | None:
    """What is counted of a ring, as JSON; None where no ring is, or no communicator lives. `now_ns` is CLOCK_MONOTONIC.

    - `number`, `moved`, `operations`: the busiest communicator, how far it has come, and how many operations it began.
    - `order`, `age_s`: its oldest operation in flight.
    - `device`: what the device does, the communicator that shows it, this rank's number in that, and the peer's.

    The busiest communicator has begun more operations than all others: it is that of the training. A small one, which other
    threads use, may make progress while the training hangs. Whatever is written at this moment is left out. Raises OSError.
    """
    communicators = _communicators(handle)
    if not communicators:
        return None
    operations, moved, number, busiest = max(_progress(place, fields) for place, fields in communicators.items())
    flight = list(_in_flight(handle, communicators))
    found: dict[str, object] = {"number": number, "moved": moved, "operations": operations}
    if oldest := min(((one.order, one.enqueued_at) for one in flight if one.communicator == busiest), default=None):
        found |= {"order": oldest[0], "age_s": max(0, now_ns - oldest[1]) / 1e9}
    # a communicator of whose kernels NCCL tells nothing shows no device as behind
    with_kernels = [one for one in flight if communicators[one.communicator][_OPERATIONS][3]]
    flows = list(_flows(handle)) if any(one.begun for one in with_kernels) else []
    if device := device_reading(with_kernels, flows):
        of = communicators.get(device.communicator)
        found["device"] = [device.doing, *((of[_NUMBER], of[2], device.peer) if of else (0, -1, -1))]
    return found


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


def _communicators(handle: int) -> dict[int, tuple[int, ...]]:
    """The fields of each communicator that lives, by its place."""
    header = os.pread(handle, layout.HEADER.size, 0)
    if len(header) < layout.HEADER.size:
        return {}
    magic, version, size, *_ = layout.HEADER.unpack(header)
    if (magic, version, size) != (layout.MAGIC, layout.VERSION, layout.SIZE):
        return {}
    table = os.pread(handle, layout.COMMS * layout.COMM.size, layout.AT_COMMS)
    return {
        at // layout.COMM.size: layout.COMM.unpack_from(table, at)
        for at in range(0, len(table) - layout.COMM.size + 1, layout.COMM.size)
        if not table[at] & 1 and int.from_bytes(table[at + 8 : at + 12], "little") == layout.LIVE
    }


def _progress(place: int, fields: tuple[int, ...]) -> tuple[int, int, int, int]:
    """A communicator's operations, how far it has come, its number and its place."""
    operations = fields[_OPERATIONS]
    moved = sum(operations) + sum(sum(fields[each]) for each in _STEPS)
    return operations[0] + operations[1], moved, fields[_NUMBER], place


def _in_flight(handle: int, communicators: Iterable[int]) -> Iterator[OperationSteps]:
    table = os.pread(handle, layout.OPS * layout.OP.size, layout.AT_OPS)
    for at in range(0, len(table) - layout.OP.size + 1, layout.OP.size):
        if table[at + 8] != layout.LIVE or table[at] & 1:
            continue
        _, state, place, order, *_, enqueued_at, launched_at, _, _, started, ended = layout.OP.unpack_from(table, at)[
            :13
        ]
        if state == layout.LIVE and place in communicators:
            yield OperationSteps(place, order, enqueued_at, bool(launched_at), bool(started), started > ended)


def _flows(handle: int) -> Iterator[TransferSteps]:
    table = os.pread(handle, layout.FLOWS * layout.FLOW.size, layout.AT_FLOWS)
    for at in range(0, len(table) - layout.FLOW.size + 1, layout.FLOW.size):
        if table[at + 8] != layout.LIVE or table[at] & 1:
            continue
        _, state, place, order, _, _, _, _, peer, _, _, sends, *steps = layout.FLOW.unpack_from(table, at)[:16]
        posted, ready, transmitted, done = steps
        if state == layout.LIVE and done <= transmitted <= ready <= posted:
            yield TransferSteps(place, order, peer, bool(sends), posted, ready, transmitted, done)
