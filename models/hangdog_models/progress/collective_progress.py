"""How far each NCCL operation of a process has come, as hangdog's profiler plug-in keeps it: see docs/profiler.md."""

from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.ranks import Rank


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

    #: NCCL's number for it (`commHash`), the same on all of its ranks.
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


@dataclass(frozen=True, slots=True)
class RankProgress:
    """The communicators of one rank's process at one moment."""

    rank: Rank
    communicators: tuple[CollectiveProgress, ...]
