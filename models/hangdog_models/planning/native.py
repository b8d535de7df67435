"""Chooses the ranks whose native stacks decide something. Reading one stops its process, so they are few, and waiting."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.activity import main_thread
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import TRAINER, Frame, ProcessTrace
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity, ClusterView, Kind, Verdict

#: A verdict this sure stands by itself: bench/accuracy finds no more than 1 in 100 of them wrong, and each native
#: capture stops a process for half a second.
SURE = 0.9
#: A less sure verdict knows the culprit but not the cause, and native stacks may show it.
DECIDED = 0.5
#: Verdicts that native stacks cannot improve: a job that moves, and ranks that called different operations, as Python
#: shows.
SETTLED = (Kind.NONE, Kind.SLOW, Kind.SOFTWARE)
#: Activities that Python frames leave open: what the host does there, or waits for, is decided in C.
OPEN = (
    Activity.UNKNOWN, Activity.COMPUTE, Activity.LAUNCH, Activity.DEVICE_SYNC, Activity.COLLECTIVE, Activity.P2P,
    Activity.RENDEZVOUS, Activity.LOCK, Activity.IDLE,
)  # fmt: skip
#: From this share of the ranks on a cluster is large: a few members represent it, and smaller clusters are outliers.
LARGE = 0.25
#: Representatives of one large cluster: two may agree by chance, three hardly.
REPRESENTATIVES = 3
#: Outliers and suspects take up to this share of all choices: the rest shows what to compare them with.
OUTLIERS = 0.5


@dataclass(frozen=True, slots=True)
class NativeChoice:
    """A rank whose native stack is worth stopping its trainer for, and why."""

    rank: Rank
    why: str


def deciding(
    snapshot: Snapshot, topology: Topology, verdict: Verdict, most: int, each: int
) -> tuple[NativeChoice, ...]:
    """The ranks to capture natively, most telling first: `most` in all, `each` on one machine; empty if none would
    decide.

    Only ranks that did not move between the last two rounds are chosen: a rank that makes progress is never stopped.
    """
    if settled(verdict):
        return ()
    still = stalled_frames(snapshot)
    if any(frame.native for frames in still.values() for frame in frames):
        return ()  # native stacks were captured already
    places = [cluster for cluster in verdict.clusters if cluster.ranks]
    if not still or not places:
        return ()
    seen = sum(len(cluster.ranks) for cluster in places)
    large = [cluster for cluster in places if len(cluster.ranks) >= LARGE * seen]
    apart = sorted((c for c in places if c not in large), key=lambda c: (len(c.ranks), c.ranks))
    if apart and not any(cluster.activity in OPEN for cluster in apart):
        return ()  # outliers differ in what Python shows
    doubtful = {rank for cluster in places if cluster.activity in OPEN for rank in cluster.ranks} & still.keys()
    return _bounded(_wanted(verdict, topology, large, apart, most), doubtful, topology, most, each)


def settled(verdict: Verdict) -> bool:
    """Whether no native stack would change a verdict: it is sure, or of a kind on which they say nothing.

    On code at work they do: a garbage collection that does not end looks like that.
    """
    suspected = set(verdict.suspects[0].ranks) if verdict.suspects else set()
    at_work = any(c.activity is Activity.COMPUTE and suspected & set(c.ranks) for c in verdict.clusters)
    if verdict.kind is Kind.SLOW and at_work:
        return verdict.confidence >= SURE
    if verdict.kind in SETTLED:
        return verdict.confidence >= DECIDED
    return verdict.kind is not Kind.UNDETERMINED and verdict.confidence >= SURE


def stalled_frames(snapshot: Snapshot) -> dict[Rank, tuple[Frame, ...]]:
    """The main thread's frames of each trainer that was at one line in the last two rounds, and was captured in full."""
    if len(snapshot.rounds) < 2:
        return {}
    before, last = (
        {trace.rank: trace for trace in round_.traces if trace.role == TRAINER} for round_ in snapshot.rounds[-2:]
    )
    found: dict[Rank, tuple[Frame, ...]] = {}
    for rank, trace in last.items():
        frames = _main(trace)
        earlier = before.get(rank)
        same = earlier is not None and earlier.pid == trace.pid and _main(earlier) == frames
        if frames and same and trace.missing is None:
            found[rank] = frames
    return found


def _main(trace: ProcessTrace) -> tuple[Frame, ...]:
    thread = main_thread(trace)
    return thread.frames if thread is not None else ()


def _wanted(
    verdict: Verdict, topology: Topology, large: Sequence[ClusterView], apart: Sequence[ClusterView], most: int
) -> Iterator[NativeChoice]:
    """The ranks that would be telling, the most telling first; a rank may come twice."""
    odd: dict[Rank, str] = {}
    crowded = {rank for cluster in large for rank in cluster.ranks}
    for suspect in verdict.suspects:
        odd.update((rank, "it is suspected") for rank in suspect.ranks if rank not in crowded)
    for cluster in apart:
        what = "it alone stands there" if len(cluster.ranks) == 1 else f"{len(cluster.ranks)} ranks stand there"
        odd |= {rank: what for rank in cluster.ranks if rank not in odd}
    first = list(odd)[: max(1, int(OUTLIERS * most))]
    yield from (NativeChoice(rank, odd[rank]) for rank in first)
    for number in range(REPRESENTATIVES):
        for cluster in large:
            if number < len(cluster.ranks):
                yield NativeChoice(
                    _spread(cluster.ranks, number), f"it stands for {len(cluster.ranks)} ranks at its place"
                )
        if number == 0:
            waits = [
                NativeChoice(rank, "it waits beside one that stands out") for rank in _beside(first, verdict, topology)
            ]
            yield from waits[: max(1, most // 4)]
    yield from (NativeChoice(rank, why) for rank, why in odd.items())
    if not apart and len(large) == 1:  # all are at one call site: only a capture finds which differ in C
        yield from (NativeChoice(rank, "all ranks stand at one place in Python") for rank in large[0].ranks)


def _spread(ranks: Sequence[Rank], number: int) -> Rank:
    """The first, the last and the middle one of a cluster, so that they are on different machines if there are several."""
    return ranks[(0, len(ranks) - 1, len(ranks) // 2)[number]]


def _beside(odd: Sequence[Rank], verdict: Verdict, topology: Topology) -> Iterator[Rank]:
    """The next ranks in the groups of outliers: those that wait for them, if any do."""
    for group in verdict.groups:
        yield from (rank for rank in group.ranks if rank not in odd)
    for rank in odd:
        for dim in topology.groups:
            members = topology.group(dim, rank) if dim != WORLD else None
            if members is not None and len(members) > 1:
                yield members[(members.index(rank) + 1) % len(members)]


def _bounded(
    wanted: Iterable[NativeChoice], allowed: set[Rank], topology: Topology, most: int, each: int
) -> tuple[NativeChoice, ...]:
    found: dict[Rank, NativeChoice] = {}
    on: dict[str | Rank, int] = {}
    for one in wanted:
        if len(found) >= most:
            break
        where = topology.machine(one.rank) or one.rank
        if one.rank in allowed and one.rank not in found and on.get(where, 0) < each:
            found[one.rank] = one
            on[where] = on.get(where, 0) + 1
    return tuple(found.values())
