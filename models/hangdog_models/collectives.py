"""What collectives libraries report: the operations that each rank enqueued and finished, and the counts of NCCL RAS."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hangdog_models.progress.collective_progress import Transfer
from hangdog_models.ranks import Rank

#: Sources of counters.
FLIGHT_RECORDER, WATCHDOG, NCCL_LOG = "flight recorder", "watchdog", "NCCL log"
#: It counts completions only, for each kind of operation separately.
INSPECTOR = "NCCL Inspector"
#: It counts the operations of each communicator, which is the group, and records which of them the device has begun.
PROFILER = "NCCL profiler"
#: How the names begin under which operations stand whose group no line of a log names.
UNNAMED = "unnamed, of "
#: Prefix of recorded operations that hosts carry out, without any device.
BY_HOSTS = "gloo:"
#: How the recorder writes the end of a batch of sends and receives.
COALESCED = "coalesced"
#: The name of an all-to-all whose sends and receives are recorded one by one.
EXCHANGE = "all_to_all"
#: Suffix of a group's name for its sends and receives, to keep them apart from its collectives in sums.
P2P = " point-to-point"


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """One operation of one rank.

    - `sequence`: its number within the process group. Sends and receives (`p2p`) are numbered separately.
    - `done`: it was retired.
    - `started`: it runs on the device (None: unknown).
    - `created_ns`: wall-clock time of its launch by this host's clock (0: unknown).
    - `took_ns`: from its start on this rank's device to its end, which all members share. The last to join has the
      shortest (0: unknown).
    - `apart_ns`: by other group, how long the operations took that this rank launched since its group's operation
      before. Point-to-point ones are separate, under the group's name and `P2P` (None: the operation before is not
      recorded or not timed).
    - `transfers`: network transfers under way for it, by NCCL's profiler; their peers are numbers in the group.
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
        """Unix time of its launch by this host's clock (0: unknown)."""
        return self.created_ns / 1e9


@dataclass(frozen=True, slots=True)
class RankCounters:
    """What one rank counted: a PyTorch flight recorder dump, or the same numbers from its log, reduced to what
    diagnosis uses.

    A process group is identified by its name, which all members share; a dump's numbers for it differ between ranks.

    - `enqueued`, `started`, `completed`: the sequence number of each group's last collective (-1: none yet). In the
      latter two, a missing group is unknown to the source (NCCL's log has no completions).
    - `members`: the ranks of each group, where the dump lists them (gloo's does not).
    - `entries`: from old to new.
    - `least_sizes`: so many members each group has at the least, where a log tells the rank's number in it.
    - `age_s`: the process dumped it by itself so many seconds before it was requested; 0 if requested or unknown.
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
    least_sizes: dict[str, int] = field(default_factory=dict)


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
    # Completed means that nothing before it is under way. The completed operation itself may not be recorded.
    return enqueued, {group: pending[group] - 1 if group in pending else done.get(group, -1) for group in enqueued}


def got_on(before: RankCounters, after: RankCounters) -> bool:
    """Whether one rank completed an operation between two of its records."""
    collectives = any(after.completed.get(group, -1) > number for group, number in before.completed.items())
    messages = _last_messages(before)
    return collectives or any(number > messages.get(group, number) for group, number in _last_messages(after).items())


def stood_still(before: RankCounters, after: RankCounters) -> bool:
    """Whether one rank completed nothing between two of its records, and did not begin anew either."""
    return before.completed == after.completed and _last_messages(before) == _last_messages(after)


def _last_messages(record: RankCounters) -> dict[str, int]:
    """The newest completed send or receive of each group."""
    newest: dict[str, int] = {}
    for entry in record.entries:
        if entry.p2p and entry.done:
            newest[entry.group] = max(newest.get(entry.group, -1), entry.sequence)
    return newest


class RasStatus(StrEnum):
    """The status of one member of a communicator, as RAS reports it."""

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
    """One member of a communicator.

    - `number`: its rank *in the communicator*, not its global rank.
    - `launched`: operations launched there, by kind (`""` if the report has only their sum). Empty if the report does
      not list the member. A launch is not a completion.
    - `error`: what NCCL reported there, in its own words, whatever the status. `Remote process error` is of a victim.
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
    """One communicator; `members` are those that the report lists, in the text report only the odd ones.

    `classes`: the text report's counts of members by the operation launched last: `((6650, 26), (6649, 6))`.
    `kind`: which operation these are of; of several kinds the one in which the members are farthest apart.
    """

    name: str
    size: int
    members: tuple[RasMember, ...] = ()
    classes: tuple[tuple[int, int], ...] = ()
    kind: str = ""


@dataclass(frozen=True, slots=True)
class RasReport:
    """One answer of NCCL RAS.

    - `lost`: processes that it cannot reach, by host and pid, in whatever communicator.
    - `gpus`: how many GPUs the job uses by the report's summary; 0 where it does not say that.
    - `processes`: how many processes run on a node, by host; under "" on each node that is not named.
    - `untold`: communicators whose ranks do not match by the report, without a word of how.
    - `impossible`: what in it cannot be so, in words: NCCL's RAS has faults of its own.
    """

    communicators: tuple[RasCommunicator, ...]
    lost: tuple[RasMember, ...] = ()
    at_s: float | None = None
    gpus: int = 0
    processes: Mapping[str, int] = field(default_factory=dict)
    untold: int = 0
    impossible: str = ""
