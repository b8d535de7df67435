"""How long each rank worked between two collectives, where only launches are timed, as by gloo's recorder.

Such a host computes itself and waits in its collectives, so it launches the next one as soon as its work is done.
Clocks of machines differ by seconds. Each rank's clock is corrected by its least delay after the median of its peers.
So a rank that is late by the same time in every operation is not found.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from statistics import median

from hangdog_models.collectives import BY_HOSTS, RankCounters
from hangdog_models.diagnosis.stragglers.recorded_intervals import Excess, like_of
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology

#: A rank with less than this share of its group's operations is left out: only operations that all recorded are
#: compared.
KNOWN = 0.5
#: Fewer ranks than these have no median to stand out from.
COMPARED_AT_LEAST = 3


def excesses(records: Iterable[RankCounters], topology: Topology) -> Iterator[Excess]:
    """How much longer than its peers each rank worked before each collective.

    Pipelines are left out: gloo records no receive.
    """
    if topology.group("pp", Rank(0)) is not None:
        return
    launches: dict[Rank, dict[str, dict[Rank, dict[int, int]]]] = {}
    for record in records:
        groups = launches.setdefault(like_of(record.rank, topology), {})
        for entry in record.entries:
            if entry.operation.startswith(BY_HOSTS) and entry.done and entry.created_ns and not entry.p2p:
                groups.setdefault(entry.group, {}).setdefault(record.rank, {})[entry.sequence] = entry.created_ns
    for groups in launches.values():
        if groups:  # the busiest: a rank that was late for another just before is in time for this one
            group, by_rank = max(groups.items(), key=lambda item: (sum(map(len, item[1].values())), item[0]))
            most = max(len(mine) for mine in by_rank.values())
            kept = {rank: mine for rank, mine in by_rank.items() if len(mine) >= KNOWN * most}
            if len(kept) >= COMPARED_AT_LEAST:
                yield from _compared(group, kept, topology)


def _compared(group: str, launches: Mapping[Rank, Mapping[int, int]], topology: Topology) -> Iterator[Excess]:
    numbers = sorted(set.intersection(*(set(mine) for mine in launches.values())))
    if not numbers:
        return
    middle = {number: int(median(mine[number] for mine in launches.values())) for number in numbers}
    at = {
        rank: {number: mine[number] - min(mine[n] - middle[n] for n in numbers) for number in numbers}
        for rank, mine in launches.items()
    }
    abroad = len(topology.machines_of(launches)) > 1
    for before, number in pairwise(numbers):
        if number != before + 1:
            continue
        done = max(mine[before] for mine in at.values())
        worked = {
            # a rank that launched before the last one came did not wait for it
            rank: mine[number] - (done if mine[number] >= done else mine[before])
            for rank, mine in at.items()
        }
        usual = int(median(worked.values()))
        for rank, took in worked.items():
            yield Excess(rank, group, took - usual, max(1, at[rank][number] - at[rank][before]), abroad)
