"""When each chunk of each collective is written, sent, confirmed and taken: a job of two kinds of groups, and a fault in it.

Eight ranks on four machines train. In each iteration the two ranks of a machine reduce through its memory (tensor parallelism),
then the four ranks of a pipeline-free data-parallel group reduce around a ring over the network. Times are of one clock, in
seconds; what a fault stops for ever has time infinity. A chunk is `ready` once the sender's GPU has written it, `transmitted`
once its network card has it, `done` once the card has confirmed it, and `taken` once the receiver's GPU has it.
"""

from dataclasses import dataclass, field
from math import inf
from random import Random

RANKS, PER_MACHINE = 8, 2
MACHINES = RANKS // PER_MACHINE
#: The data-parallel groups, in the order of their rings.
RINGS = tuple(tuple(range(first, RANKS, PER_MACHINE)) for first in range(PER_MACHINE))
#: Chunks that each rank sends in one reduction: 2 (4 - 1) a slice, and four slices.
CHUNKS = 24
#: Chunks that a receiver has room for.
ROOM = 4
#: A healthy job: computing before each of the two reductions, the one inside the machine, a chunk over a link, and its copies
#: between GPU and network card. Seconds.
COMPUTE_S, TENSOR_S, CHUNK_S, COPY_S = 0.12, 0.004, 0.004, 0.001
#: How many times as long what is slow takes: a tenth of a card's bandwidth, of the bus, and a GPU that is throttled.
NIC_SLOW, BUS_SLOW, GPU_SLOW = 10.0, 10.0, 2.5
#: What a rank that is late does before it launches anything. Seconds.
DELAYED_S = 120.0


@dataclass(frozen=True, slots=True)
class Fault:
    """`kind` strikes `rank`, or the network card of its machine, at `at`."""

    kind: str
    rank: int
    at: float

    def strikes(self, rank: int, when: float) -> bool:
        return rank == self.rank and when >= self.at

    def strikes_machine_of(self, rank: int, when: float) -> bool:
        return rank // PER_MACHINE == self.rank // PER_MACHINE and when >= self.at


@dataclass(slots=True)
class Sent:
    """The chunks that one rank sends in one reduction, or gets, by when each has come how far."""

    posted: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    transmitted: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)

    def add(self, posted: float, ready: float, transmitted: float, done: float) -> None:
        """The next chunk."""
        self.posted.append(posted)
        self.ready.append(ready)
        self.transmitted.append(transmitted)
        self.done.append(done)


@dataclass(slots=True)
class Reduction:
    """One operation on one rank; `sends` and `gets` are empty inside of a machine."""

    function: str
    enqueued: float
    started: float = inf
    ended: float = inf
    sends: Sent = field(default_factory=Sent)
    gets: Sent = field(default_factory=Sent)


@dataclass(slots=True)
class Played:
    """What each rank did: its reductions in both groups, and when each of its iterations ended."""

    tensor: list[list[Reduction]] = field(default_factory=lambda: [[] for _ in range(RANKS)])
    data: list[list[Reduction]] = field(default_factory=lambda: [[] for _ in range(RANKS)])
    steps: list[list[float]] = field(default_factory=lambda: [[] for _ in range(RANKS)])


def play(fault: Fault | None, until: float, seed: int) -> Played:
    """A job up to `until`, or until nothing of it moves any more."""
    chance, played = Random(seed), Played()
    begins = [0.0] * RANKS
    while min(begins) < until:
        begins = _iteration(played, begins, fault, chance)
    return played


def _iteration(played: Played, begins: list[float], fault: Fault | None, chance: Random) -> list[float]:
    """One iteration of all ranks, which begin it at these times; answers when each has ended it."""
    enqueues = [_delayed(fault, rank, begins[rank]) + 0.001 for rank in range(RANKS)]
    odd = _otherwise(fault, enqueues)
    computed = [_computed(fault, rank, enqueues[rank], chance) for rank in range(RANKS)]
    second: list[float] = []
    for rank in range(RANKS):
        met = max(computed[rank // PER_MACHINE * PER_MACHINE :][:PER_MACHINE]) + TENSOR_S
        one = Reduction("AllReduce", enqueues[rank], computed[rank], met)
        if enqueues[rank] < inf:
            played.tensor[rank].append(one)
        second.append(_computed(fault, rank, met, chance))
    for ring in RINGS:
        calls = [
            Reduction("AllGather" if rank == odd else "AllReduce", enqueues[rank] + 0.001, second[rank])
            for rank in ring
        ]
        _reduce(ring, calls, fault, stuck=odd in ring)
        for rank, one in zip(ring, calls, strict=True):
            if one.enqueued < inf:
                played.data[rank].append(one)
    ends = [played.data[rank][-1].ended + 0.001 if enqueues[rank] < inf else inf for rank in range(RANKS)]
    for rank, end in enumerate(ends):
        if end < inf:
            played.steps[rank].append(end)
    return ends


def _delayed(fault: Fault | None, rank: int, begins: float) -> float:
    """A rank that is late once begins an iteration so much later; the next one in time."""
    late = fault is not None and fault.kind == "delayed rank" and fault.strikes(rank, begins)
    return begins + DELAYED_S if late and fault is not None and begins < fault.at + DELAYED_S else begins


def _otherwise(fault: Fault | None, enqueues: list[float]) -> int | None:
    """The rank that calls another function in this iteration than its peers."""
    if fault is None or fault.kind != "mismatched call" or not fault.strikes(fault.rank, enqueues[fault.rank]):
        return None
    return fault.rank


def _computed(fault: Fault | None, rank: int, begins: float, chance: Random) -> float:
    """When a GPU has computed what stands before a reduction."""
    takes = COMPUTE_S * chance.uniform(0.95, 1.05)
    if fault is not None and fault.strikes(rank, begins):
        if fault.kind == "GPU hang":
            return inf
        takes *= GPU_SLOW if fault.kind == "GPU slow" else 1.0
    return begins + takes


def _reduce(ring: tuple[int, ...], calls: list[Reduction], fault: Fault | None, stuck: bool) -> None:
    """Fills in the chunks of one reduction around a ring. `stuck`: one of its ranks calls another function."""
    size = len(ring)
    taken = [-inf] * size  # of each rank the latest chunk that it got
    for number in range(CHUNKS):
        sent: list[tuple[float, float, float, float]] = []
        for at, rank in enumerate(ring):
            one, after = calls[at], calls[(at + 1) % size]
            kernel = max(one.started, taken[at]) if not stuck else inf
            room = after.gets.done[number - ROOM] if number >= ROOM else after.enqueued
            before = one.sends.done[-1] if one.sends.done else one.enqueued
            posted = max(one.enqueued, one.sends.done[number - ROOM] if number >= ROOM else one.enqueued)
            ready = max(kernel, one.sends.ready[-1] if one.sends.ready else kernel)
            ready += _copying(fault, rank, ready)
            transmitted = max(ready, room, before) if max(ready, room) < inf else inf
            done = transmitted + _crossing(fault, rank, ring[(at + 1) % size], transmitted)
            sent.append((posted, ready, transmitted, done))
        for one, chunk in zip(calls, sent, strict=True):
            one.sends.add(*chunk)
        for at, rank in enumerate(ring):
            one, came = calls[at], sent[at - 1][3]
            posted = one.gets.done[number - ROOM] if number >= ROOM else one.enqueued
            done = max(came, one.started, taken[at]) if came < inf else inf
            done += _copying(fault, rank, done)
            one.gets.add(posted, came, came, done)
            taken[at] = done
    for one in calls:
        one.ended = max(one.sends.done[-1], one.gets.done[-1])


def _copying(fault: Fault | None, rank: int, when: float) -> float:
    """Seconds that a chunk takes between a GPU and its machine's network card."""
    slow = fault is not None and fault.kind == "PCIe slow" and fault.strikes(rank, when)
    throttled = fault is not None and fault.kind == "GPU slow" and fault.strikes(rank, when)
    return COPY_S * (BUS_SLOW if slow else GPU_SLOW if throttled else 1.0)


def _crossing(fault: Fault | None, sender: int, receiver: int, when: float) -> float:
    """Seconds that a chunk takes from one machine to another."""
    touches = fault is not None and (fault.strikes_machine_of(sender, when) or fault.strikes_machine_of(receiver, when))
    if fault is None or not touches:
        return CHUNK_S
    return inf if fault.kind == "NIC down" else CHUNK_S * NIC_SLOW if fault.kind == "NIC slow" else CHUNK_S
