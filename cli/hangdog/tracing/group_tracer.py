"""Follows the process groups of this trainer and what is under way in each, and keeps the ring of it."""

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from hangdog.tracing.ring_file import create_ring
from hangdog.tracing.ring_writer import OpenCommunicator, RingWriter, call_bytes

#: Backends whose collectives devices carry out: the plug-in keeps theirs, and knows what the device has begun.
_ON_DEVICES = {"nccl", "xccl", "hccl", "rccl"}


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One method of a process group: what it is called in a ring, which of its arguments holds the tensors, and whose peer."""

    function: str
    tensors: int | None
    collective: bool = True
    peer: Callable[[Sequence[Any]], int] | None = None


@dataclass(slots=True)
class _Group:
    """A process group that is followed; `count` answers how many collectives it has counted itself, where it does."""

    comm: OpenCommunicator
    backend: str
    alive: "weakref.ref[Any]"
    count: Callable[[], int] | None
    calls: dict[tuple[str, Any, int], bytes]


class _Handle(weakref.ref[Any]):
    """A work handle that the trainer has: where its operation stands."""

    __slots__ = ("comm", "key", "slot")

    comm: OpenCommunicator
    key: int
    slot: int


#: What `begin` answers: an operation's group and place.
Begun = tuple[OpenCommunicator, int]


class GroupTracer:
    """All of it. No method raises: the first thing that goes wrong turns it off, with one line on stderr."""

    def __init__(self, stop: Callable[[], None] = lambda: None) -> None:
        """`stop` is called once it is off, and takes it out of the trainer's calls."""
        self.off = False
        self._stop = stop
        self._begin_anew()

    def _begin_anew(self) -> None:
        # A signal handler may call a collective while one is begun: the lock must not wait for its own thread.
        self._lock = threading.RLock()
        self._ring: RingWriter | None = None
        self._groups: dict[int, _Group | None] = {}
        self._under_way: dict[int, _Handle] = {}
        self._dropped: deque[_Handle] = deque()
        self._unfollowed: dict[int, weakref.ref[Any]] = {}

    def forked(self) -> None:
        """A child shares its parent's memory, and must not write into the parent's ring."""
        self._begin_anew()

    def created(self, group: Any) -> None:
        """Takes a process group, as soon as it has its name."""
        if self.off:
            return
        try:
            with self._lock:
                self._known(group)
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer goes on
            self.fail(error)

    def ended(self, group: Any) -> None:
        """Takes that a group was shut down or aborted."""
        if self.off:
            return
        try:
            with self._lock:
                self._end(id(group))
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer goes on
            self.fail(error)

    def begin(self, group: Any, call: TracedCall, args: Sequence[Any]) -> Begun | None:
        """Notes that an operation is called; None where its group is not followed."""
        if self.off:
            return None
        try:
            with self._lock:
                self._drain()
                known = self._known(group)
                if known is None:
                    return None
                count, dtype = _size(args[call.tensors]) if call.tensors is not None and args else (0, "")
                peer = call.peer(args) if call.peer is not None else 0
                key = call.function, dtype, peer
                what = known.calls.get(key)
                if what is None:
                    name = str(dtype).removeprefix("torch.")
                    what = known.calls[key] = call_bytes(call.function, name, known.backend, peer, call.collective)
                ring = self._ring
                assert ring is not None
                if known.count is not None:
                    ring.counted(known.comm, known.count())
                return known.comm, ring.start(known.comm, what, count, call.collective)
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer goes on
            self.fail(error)
            return None

    def under_way(self, begun: Begun | None, work: Any) -> None:
        """Takes the handle that a call answered; without one the operation is over."""
        if begun is None or self.off:
            return
        try:
            with self._lock:
                if work is None:
                    self._finish(*begun)
                    return
                handle = _Handle(work, self._dropped.append)
                handle.comm, handle.slot = begun
                handle.key = id(work)
                self._under_way[handle.key] = handle
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer goes on
            self.fail(error)

    def over(self, work: Any) -> None:
        """Takes that the host has seen an operation end, well or not."""
        handle = self._under_way.get(id(work))
        if handle is None or self.off:
            return
        try:
            with self._lock:
                if handle() is work and self._under_way.pop(handle.key, None) is handle:
                    self._finish(handle.comm, handle.slot)
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer goes on
            self.fail(error)

    def catch_up(self) -> None:
        """Takes over what the groups have counted themselves: the collectives that C++ calls, as DDP's do."""
        if self.off:
            return
        try:
            with self._lock:
                self._drain()
                for known in self._groups.values():
                    if self._ring is not None and known is not None and known.count is not None:
                        self._ring.counted(known.comm, known.count())
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer goes on
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Turns it off for good."""
        if self.off:
            return
        self.off = True
        try:
            self._stop()
            print(f"hangdog.trace is off: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        except Exception:  # noqa: BLE001, S110 - stderr is closed: there is nobody to tell
            pass

    def _finish(self, comm: OpenCommunicator, slot: int) -> None:
        if self._ring is not None:
            self._ring.finish(comm, slot)

    def _drain(self) -> None:
        """Finishes what has no handle any more: nobody waits for it. The garbage collector may add to it at any time."""
        while self._dropped:
            handle = self._dropped.popleft()
            if self._under_way.get(handle.key) is handle:
                del self._under_way[handle.key]
                self._finish(handle.comm, handle.slot)

    def _known(self, group: Any) -> _Group | None:
        key = id(group)
        known = self._groups.get(key)
        if known is not None and known.alive() is group:
            return known
        refused = self._unfollowed.get(key)
        if refused is not None and refused() is group:
            return None
        self._end(key)
        made = self._followed(group)
        if made is None:
            self._unfollowed[key] = weakref.ref(group)
        else:
            self._groups[key] = made
        return made

    def _followed(self, group: Any) -> _Group | None:
        backends = {str(group._get_backend(device).name()).lower() for device in group._device_types}
        name, ranks = str(group.group_name), int(group.size())
        if not backends or backends & _ON_DEVICES or not name:
            return None
        for key, other in list(self._groups.items()):  # groups that went without a word
            if other is None or other.alive() is None:
                self._end(key)
        if self._ring is None:
            self._ring = RingWriter(create_ring())
        number = int.from_bytes(blake2b(f"{name}/{ranks}".encode(), digest_size=8).digest(), "little")
        comm = self._ring.begin(number, str(group.group_desc) or name, int(group.rank()), ranks, _machines(ranks))
        if comm is None:
            return None
        count = group._get_sequence_number_for_group
        try:
            self._ring.counted(comm, count())
        except Exception:  # noqa: BLE001 - this backend counts nothing
            count = None
        return _Group(comm, min(backends), weakref.ref(group), _weakly(group) if count is not None else None, {})

    def _end(self, key: int) -> None:
        known = self._groups.pop(key, None)
        if known is None or self._ring is None:
            return
        for handle in [one for one in self._under_way.values() if one.comm is known.comm]:
            del self._under_way[handle.key]
            self._finish(handle.comm, handle.slot)
        self._ring.end(known.comm)


def _weakly(group: Any) -> Callable[[], int]:
    """How many collectives a group has counted; it is not kept from ending."""
    found = weakref.ref(group)

    def count() -> int:
        alive = found()
        return int(alive._get_sequence_number_for_group()) if alive is not None else 0

    return count


def _size(tensors: Any) -> tuple[int, Any]:
    """Elements and type of what a call was given: a tensor, or lists of them."""
    if not isinstance(tensors, list | tuple):
        return tensors.numel(), tensors.dtype
    if len(tensors) == 1:
        return _size(tensors[0])
    sizes = [_size(each) for each in tensors]
    return sum(size for size, _ in sizes), sizes[0][1] if sizes else ""


def _machines(ranks: int) -> int:
    """How many machines a group spans at the least, as far as the launcher says how many ranks each has."""
    here = os.environ.get("LOCAL_WORLD_SIZE", "")
    return -(-ranks // int(here)) if here.isdecimal() and int(here) > 0 else 1
