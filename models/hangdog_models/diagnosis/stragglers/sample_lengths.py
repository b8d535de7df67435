"""Whether a rank that works longer has more work: the samples of a replica may be longer, or more, than its peers'."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from statistics import mean, median

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.stragglers.recorded_intervals import kind_of, like_of
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import VerdictReason

SAMPLES_EXPLAIN = likelihood("samples_explain")
#: The dimensions that split one replica: its ranks work on the same samples, and their operations carry what these
#: become. Data-parallel sums are equally large for all samples, and experts get the samples of all replicas.
SPLIT = ("tp", "cp", "pp")
#: A kind of operation: the dimension of its group, and whether it is a send or a receive.
Kind = tuple[str, bool]
#: No tensor has as many elements; a corrupt dump may say so.
MOST = 1 << 48


class Samples(StrEnum):
    """What is known about the samples of the late ranks."""

    ALIKE = "alike"
    MORE = "more"
    UNTOLD = "untold"


@dataclass(frozen=True, slots=True)
class Load:
    """`reasons` explain it to people, if samples are more or unknown."""

    samples: Samples
    reasons: tuple[VerdictReason, ...] = ()


def load(
    late: Collection[Rank], longer: float, timed: Collection[Rank], records: Iterable[RankCounters], topology: Topology
) -> Load:
    """What the late ranks of one machine have to work on; their work takes `longer` times that of their peers.

    Samples are alike in three cases:

    - Operations carry as much as those of the peers.
    - A rank of the same replica is not late.
    - All of the machine's ranks are late, and they are of several replicas.

    They are unknown for a single rank that holds the whole model.
    """
    replicas = {replica(rank, topology) for rank in late}
    on = topology.machines_of(late)
    if len(on) > 1:
        text = f"all {len(late)} ranks of one replica are late alike, on {len(on)} machines: what they have in common is their samples"
        return Load(Samples.MORE, (VerdictReason("replica-late", text),))
    times = _carried(late, records, topology)
    if times is not None and times - 1 >= SAMPLES_EXPLAIN * (longer - 1):
        text = f"its operations carry {times:.1f} times what those of the ranks that do the same work carry"
        text = f"{text}: its samples are longer, or more, and its device need not be slow"
        return Load(Samples.MORE, (VerdictReason("carries-more", text),))
    if times is not None or any(mate in timed and mate not in late for one in replicas for mate in one):
        return Load(Samples.ALIKE)
    there = {rank for machine in on for rank in topology.machines[machine] if rank in timed}
    if len(replicas) > 1 and there.issubset(late):
        return Load(Samples.ALIKE)
    text = "nothing tells a slow device from samples that are longer, or more, in every step"
    text = f"{text}: give it other data, and see whether it is late with these"
    return Load(Samples.UNTOLD, (VerdictReason("samples-untold", text),))


def replica(rank: Rank, topology: Topology) -> frozenset[Rank]:
    """The ranks that work on the same samples as this one; itself alone where the model is not split."""
    found, edge = {rank}, [rank]
    while edge:
        at = edge.pop()
        mates = {mate for dim in SPLIT for mate in topology.group(dim, at) or ()} - found
        found |= mates
        edge.extend(mates)
    return frozenset(found)


def one_replica(late: Collection[Rank], timed: Collection[Rank], topology: Topology) -> bool:
    """Whether the late ranks are all ranks of one replica, on several machines: they have their samples in common."""
    mates = replica(next(iter(late)), topology)
    return len(topology.machines_of(late)) > 1 and set(late) == mates.intersection(timed)


def _carried(late: Collection[Rank], records: Iterable[RankCounters], topology: Topology) -> float | None:
    """The most that the late ranks' operations carry, as a multiple of their peers'; None where no operation shows it."""
    amounts: dict[Rank, dict[Rank, Mapping[Kind, float]]] = {}
    for record in records:
        amounts.setdefault(like_of(record.rank, topology), {})[record.rank] = _amounts(record, topology)
    reported = []
    for rank in late:
        alike = amounts.get(like_of(rank, topology), {})
        for kind, amount in alike.get(rank, {}).items():
            usual = [theirs[kind] for other, theirs in alike.items() if other not in late and kind in theirs]
            if usual:
                reported.append(amount / median(usual))
    return max(reported, default=None)


def _amounts(record: RankCounters, topology: Topology) -> Mapping[Kind, float]:
    """By kind of operation: the mean elements of the newest ones, times how many there were since the start.

    All ranks count from the job's start. A rank with more samples of one size has launched as many more operations.
    """
    kinds: dict[str, str] = {}
    newest: dict[Kind, int] = {}
    elements: dict[Kind, list[int]] = {}
    for entry in record.entries:
        kind = kind_of(entry.group, record, topology, kinds), entry.p2p
        if kind[0] in SPLIT and entry.input_sizes:
            newest[kind] = max(newest.get(kind, 0), entry.sequence)
            elements.setdefault(kind, []).append(min(max(0, sum(map(prod, entry.input_sizes))), MOST))
    return {kind: (newest[kind] + 1) * mean(sizes) for kind, sizes in elements.items() if any(sizes)}
