"""What the collectives libraries themselves say: operations each rank enqueued and finished, and what NCCL RAS counts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from hangdog_models.progress.collective_progress import Transfer
from hangdog_models.ranks import Rank

#: Where counters come from.
FLIGHT_RECORDER, WATCHDOG, NCCL_LOG = "flight recorder", "watchdog", "NCCL log"
#: It counts what completed only, each kind of operation by itself.
INSPECTOR = "NCCL Inspector"
#: It counts the operations of a communicator, which is its group, and knows which the device has begun.
PROFILER = "NCCL profiler"
#: How the recorder begins the names of operations that hosts carry out, without any device.
BY_HOSTS = "gloo:"
#: How the recorder writes the end of a batch of sends and receives.
COALESCED = "coalesced"
#: How the sends and receives of an all-to-all are called where they are recorded one by one.
EXCHANGE = "all_to_all"
#: What tells the sends and receives of a group from its collectives where both are added up.
P2P = " point-to-point"


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """One operation of one rank. `sequence` counts within the process group; `done` says it was retired.

    Sends and receives (`p2p`) have a sequence of their own in the same group. `started`: it runs on the device (None:
    not known). `created_ns`: wall-clock time of its launch by this host's clock (0: not known).

    `took_ns`: from its beginning on this rank's device to its end, which all members share, so who joins last has the
    shortest (0: not known). `apart_ns`: how long the operations of each other group took that were launched on this rank
    between its group's operation before and this one; point-to-point ones stand apart, by the group's name and `P2P`
    (None: the operation before is not in the record, or not timed).

    `transfers`: what the network moves for it, under way, as NCCL's profiler counts; their peers are numbers in the group.
    """

    group: str
    sequence: int
    operation: str
    done: bool
    input_sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    p2p: bool = False
    started: bool | None = None
    output_sizes: tuple[tuple[int, ...], ...] = ()
    created_ns: int = 0
    took_ns: int = 0
    apart_ns: tuple[tuple[str, int], ...] | None = None
    transfers: tuple[Transfer, ...] = ()

    @property
    def created_s(self) -> float:
        """Unix time of its launch by this host's clock (0: not known)."""
        return self.created_ns / 1e9


@dataclass(frozen=True, slots=True)
class RankCounters:
    """What one rank counted: a PyTorch flight recorder dump, or the same numbers from its log, reduced to what diagnosis uses.

    A process group goes by its name, which all its members share; a dump's numbers for it differ between ranks.
    `enqueued`, `started` and `completed` map a group to its last collective's sequence number (-1: none yet). A group
    that `completed` or `started` does not hold is one of which the source does not tell (NCCL's log tells no completion).
    `age_s`: so many seconds before it was asked for, its process wrote it by itself; 0 where it answered, or nobody knows.
    `members` maps a group to its ranks where the dump says so (gloo's does not). `entries` run from old to new.
    """

    rank: Rank
    enqueued: dict[str, int]
    completed: dict[str, int]
    entries: tuple[CollectiveRecord, ...]
    members: dict[str, tuple[Rank, ...]]
    descriptions: dict[str, str]
    started: dict[str, int] = field(default_factory=dict)
    source: str = FLIGHT_RECORDER
    age_s: int = 0


def counts_of(records: Iterable[CollectiveRecord]) -> tuple[dict[str, int], dict[str, int]]:
    """Last enqueued and last completed collective of each group, as far as these records show them."""
    enqueued: dict[str, int] = {}
    done: dict[str, int] = {}
    pending: dict[str, int] = {}
    for record in records:
        enqueued.setdefault(record.group, -1)
        if record.p2p:
            continue
        enqueued[record.group] = max(enqueued[record.group], record.sequence)
        if record.done:
            done[record.group] = max(done.get(record.group, -1), record.sequence)
        else:
            pending[record.group] = min(pending.get(record.group, record.sequence), record.sequence)
    # Completed means that nothing before it is still under way; what is complete itself may not be in the record.
    return enqueued, {group: pending[group] - 1 if group in pending else done.get(group, -1) for group in enqueued}


def got_on(before: RankCounters, after: RankCounters) -> bool:
    """Whether one rank completed an operation between two of its records."""
    collectives = any(after.completed.get(group, -1) > number for group, number in before.completed.items())
    messages = _last_messages(before)
    return collectives or any(number > messages.get(group, number) for group, number in _last_messages(after).items())


def _last_messages(record: RankCounters) -> dict[str, int]:
    """The newest completed send or receive of each group."""
    newest: dict[str, int] = {}
    for entry in record.entries:
        if entry.p2p and entry.done:
            newest[entry.group] = max(newest.get(entry.group, -1), entry.sequence)
    return newest


class RasStatus(StrEnum):
    """What RAS says of one member of a communicator."""

    RUNNING = "running"
    INIT = "init"
    FINALIZE = "finalize"
    ABORT = "abort"
    UNKNOWN = "unknown"
    ERROR = "error"
    UNRESPONSIVE = "unresponsive"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class RasMember:
    """One member of a communicator: `number` is its rank *in the communicator*, which is no global rank.

    `launched` is the number of operations launched there, by kind (`""` where the report gives only their sum); empty
    where the report does not speak of this member. Launched says nothing of completion. `error` is what NCCL reported
    there, in its own words (`Remote process error` is a sufferer's), whatever the status.
    """

    number: int
    status: RasStatus = RasStatus.RUNNING
    host: str = ""
    pid: int | None = None
    device: int | None = None
    launched: dict[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class RasCommunicator:
    """One communicator: `members` holds those the report speaks of, which in the text report are the odd ones only.

    `classes` are the text report's counts of members by the operation launched last: `((6650, 26), (6649, 6))`.
    """

    name: str
    size: int
    members: tuple[RasMember, ...] = ()
    classes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RasReport:
    """One answer of NCCL RAS. `lost` are processes it cannot reach, by host and pid, whatever communicator they are in."""

    communicators: tuple[RasCommunicator, ...]
    lost: tuple[RasMember, ...] = ()
    at_s: float | None = None
