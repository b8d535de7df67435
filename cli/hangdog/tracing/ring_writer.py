"""Writes communicators and operations into a mapped ring, so that a reader never takes half a record for a whole one.

A record begins with a number that is odd while it is written. Fields of 8 bytes are stored at once. Only one thread may
write at a time; the order of its stores is that of the program on x86, and on Arm the GIL's own fences keep it.
"""

import mmap
import struct
import time
from dataclasses import dataclass

from hangdog.tracing.ring_layout import layout

#: Of an operation or a communicator's last one: what was called, from `peer` on.
_CALL = struct.Struct("<iHBx16s12s20s12s")
#: An operation from its state on, up to what was called; a communicator from its state to its counts.
_OPERATION, _AT_CALL = struct.Struct("<II4Q4Q4I"), 96
_COMMUNICATOR = struct.Struct("<IiiiQQQ64s")
#: Fields of a communicator, in words of 8 bytes from its beginning.
_ENDED, _COLLECTIVES, _MESSAGES, _LAUNCHED, _STARTED, _FINISHED, _LEFT_OUT = 5, 14, 15, 16, 17, 18, 19
_ENQUEUED_AT, _STARTED_AT, _FINISHED_AT = 22, 23, 24
_LAST = layout.AT_LAST // 8
_WORD = 8
_COLLECTIVE, _MESSAGE = 1, 2


@dataclass(slots=True)
class OpenCommunicator:
    """One communicator of this process, at its place in the ring; `in_flight` counts operations that are not finished."""

    place: int
    number: int
    collectives: int = 0
    messages: int = 0
    in_flight: int = 0


def call_bytes(function: str, datatype: str, backend: str, peer: int, collective: bool) -> bytes:
    """What an operation was called with, as a record holds it; the backend stands where NCCL has its algorithm."""
    kind = _COLLECTIVE if collective else _MESSAGE
    return _CALL.pack(
        peer,
        0,
        kind,
        *(text.encode()[: size - 1] for text, size in ((function, 16), (datatype, 12), (backend, 20))),
        b"",
    )


class RingWriter:
    """The ring of this process. Each method takes a microsecond or two, and none waits."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._numbers = memoryview(memory).cast("Q")
        self._free = list(range(layout.OPS - 1, -1, -1))
        self._states = [0] * layout.COMMS
        self._ends = [0] * layout.COMMS

    def begin(self, number: int, name: str, rank: int, ranks: int, machines: int) -> OpenCommunicator | None:
        """Opens a communicator: at the place of the same one that ended, at an unused place, or at the oldest ended one's."""
        words, ended = self._numbers, [at for at, state in enumerate(self._states) if state == layout.ENDED]
        same = [at for at in ended if words[self._comm(at) + 3] == number]
        unused = [at for at, state in enumerate(self._states) if not state]
        place = next(iter((*same, *unused[:1], *sorted(ended, key=self._ends.__getitem__))), None)
        if place is None:
            return None
        at = self._comm(place)
        written = words[at] | 1
        words[at] = written
        last = words[at + _LAST]
        start = (at + 1) * _WORD
        self._memory[start : start + layout.COMM.size - _WORD] = bytes(layout.COMM.size - _WORD)
        words[at + _LAST] = last
        _COMMUNICATOR.pack_into(
            self._memory, start, layout.LIVE, rank, ranks, machines, number, time.monotonic_ns(), 0, name.encode()[:63]
        )
        words[at] = written + 1
        self._states[place] = layout.LIVE
        return OpenCommunicator(place, number)

    def end(self, comm: OpenCommunicator) -> None:
        """Marks a communicator as ended; the caller finishes its operations."""
        at, now = self._comm(comm.place), time.monotonic_ns()
        self._numbers[at + _ENDED] = now
        self._numbers[at + 1] = (self._numbers[at + 1] >> 32 << 32) | layout.ENDED
        self._states[comm.place], self._ends[comm.place] = layout.ENDED, now

    def counted(self, comm: OpenCommunicator, collectives: int) -> None:
        """Takes over how many collectives the group itself has counted: some are called where Python does not see it."""
        if collectives > comm.collectives:
            comm.collectives = collectives
            self._count(self._comm(comm.place), comm)

    def start(self, comm: OpenCommunicator, call: bytes, count: int, collective: bool) -> int:
        """Writes an operation as running, for hosts carry it out at once; answers its place, or -1 where none is free.

        `count` is in elements.
        """
        now, words, memory, at = time.monotonic_ns(), self._numbers, self._memory, self._comm(comm.place)
        order = comm.collectives + comm.messages
        number = comm.collectives if collective else 0
        slot = self._free.pop() if self._free else -1
        if slot >= 0:
            op = (layout.AT_OPS + slot * layout.OP.size) // _WORD
            written = words[op] | 1
            words[op] = written
            start = (op + 1) * _WORD
            _OPERATION.pack_into(
                memory, start, layout.LIVE, comm.place, order, 0, number, count, now, now, now, now, 1, 0, 0, 0
            )
            start += _AT_CALL - _WORD
            memory[start : start + _CALL.size] = call
            words[op] = written + 1
            comm.in_flight += 1
        else:
            words[at + _LEFT_OUT] += 1
        last = at + _LAST
        written = words[last] | 1
        words[last] = written
        words[last + 1], words[last + 2], words[last + 3] = order, number, count
        start = (last + 4) * _WORD
        memory[start : start + _CALL.size] = call
        words[last] = written + 1
        if collective:
            comm.collectives += 1
        else:
            comm.messages += 1
        words[at + _ENQUEUED_AT] = words[at + _STARTED_AT] = now
        self._count(at, comm)
        return slot

    def finish(self, comm: OpenCommunicator, slot: int) -> None:
        """Frees the place of an operation that is over."""
        if slot < 0:
            return
        op = (layout.AT_OPS + slot * layout.OP.size) // _WORD
        self._numbers[op + 1] = comm.place << 32
        self._free.append(slot)
        comm.in_flight -= 1
        at = self._comm(comm.place)
        if self._numbers[at + 3] == comm.number:
            self._numbers[at + _FINISHED_AT] = time.monotonic_ns()
            self._count(at, comm)

    def _count(self, at: int, comm: OpenCommunicator) -> None:
        words, launched = self._numbers, comm.collectives + comm.messages
        words[at + _COLLECTIVES], words[at + _MESSAGES] = comm.collectives, comm.messages
        words[at + _LAUNCHED] = words[at + _STARTED] = launched
        words[at + _FINISHED] = launched - comm.in_flight

    @staticmethod
    def _comm(place: int) -> int:
        return (layout.AT_COMMS + place * layout.COMM.size) // _WORD
