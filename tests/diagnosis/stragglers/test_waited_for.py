"""Who works longer than its like is blamed only if somebody waits for it; where no machine is known, its tensor group is named."""

import re
from dataclasses import replace

import pytest

from hangdog_models.collectives import P2P, CollectiveRecord, RankCounters
from hangdog_models.diagnosis.stragglers import waited_for
from hangdog_models.diagnosis.stragglers.straggler import find
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.flight_recorder import recent
from hangdog_models.topology import Topology
from support.cases.stories import job

MS = 1_000_000
STEP_NS = 1_000 * MS
REPLICAS = job(per_machine=2, dp=8)


def steps(rank: int, waits: dict[str, int], *, steps: int = 20, p2p: bool = False) -> RankCounters:
    """Steps of one second, each of which ends in an operation of all replicas; before it the waits of `waits`, in milliseconds."""
    entries = []
    for step in range(steps):
        for group, waited in waits.items():
            entries.append(
                CollectiveRecord(
                    group, step, "nccl:recv 1<-0" if p2p else "nccl:all_reduce", True, p2p=p2p,
                    created_ns=step * STEP_NS + 1, took_ns=waited * MS,
                )
            )  # fmt: skip
        entries.append(
            CollectiveRecord("dp", step, "nccl:all_reduce", True, created_ns=(step + 1) * STEP_NS, took_ns=2 * MS)
        )
    members = {"dp": tuple(map(Rank, range(8)))}
    return RankCounters(Rank(rank), {}, {}, recent(entries), members, dict.fromkeys(waits, "EMBEDDING_GROUP"))


def embedded(waiting: int) -> list[RankCounters]:
    """All but rank 5 wait 300 ms in a group of their own; its partner in that group, rank 13, waits for `waiting` beyond its like."""
    like = [steps(rank, {f"e{rank}": 3 if rank == 5 else 300}) for rank in range(8)]
    partners = [
        replace(
            steps(8 + rank, {f"e{rank}": 3 + (waiting if rank == 5 else 0)}),
            members={"dp": tuple(map(Rank, range(8, 16)))},
        )
        for rank in range(8)
    ]
    return [*like, *_renamed(partners)]


def _renamed(records: list[RankCounters]) -> list[RankCounters]:
    """The second stage's replicas have a group of their own."""
    return [
        replace(
            record,
            entries=tuple(replace(one, group="dp2") if one.group == "dp" else one for one in record.entries),
            members={"dp2": record.members["dp"]},
        )
        for record in records
    ]


STAGED = job(per_machine=2, dp=8, pp=2)


@pytest.mark.parametrize(("waiting", "named"), [(0, False), (290, True)])
def test_who_is_not_in_a_recorded_wait_is_late_only_if_another_waits_for_it(waiting: int, named: bool) -> None:
    answer = find(embedded(waiting), STAGED)
    assert (answer is not None and answer.suspects[0].probability > 0.5) is named
    assert not named or (answer is not None and answer.suspects[0].ranks == (5,))


def test_whoever_is_late_kept_the_others_waiting_in_their_own_operation() -> None:
    records = [
        replace(one, entries=tuple(replace(entry, took_ns=(5 if one.rank == 5 else 405) * MS) for entry in one.entries))
        for one in (steps(rank, {}) for rank in range(8))
    ]
    shares = waited_for.shares(records, REPLICAS)
    assert shares[Rank(5)] == pytest.approx(0.4) and max(shares[Rank(rank)] for rank in range(8) if rank != 5) == 0


def test_a_receive_counts_for_whoever_shares_the_pipeline() -> None:
    records = [*(steps(rank, {}) for rank in range(8))]
    waiting = _renamed([steps(8 + rank, {f"pp{rank}": 400 if rank == 5 else 3}, p2p=True) for rank in range(8)])
    records[5] = replace(records[5], members={**records[5].members, "pp5": (Rank(5), Rank(13))})
    shares = waited_for.shares([*records, *waiting], STAGED)
    assert waiting[5].entries[-1].apart_ns == ((f"pp5{P2P}", 400 * MS),)
    assert shares[Rank(5)] == pytest.approx(0.397) and shares[Rank(4)] == 0 and shares[Rank(13)] == 0


def test_where_no_machine_is_known_a_tensor_group_is_named_together() -> None:
    split = job(per_machine=4, tp=4, dp=4)
    nowhere = Topology(split.world_size, split.groups, {})
    late = range(4, 8)
    records = []
    for rank in range(16):
        one = steps(rank, {})
        took = 3 if rank in late else 303
        name = f"dp {rank % 4}"
        entries = tuple(replace(entry, group=name, took_ns=took * MS) for entry in one.entries)
        group = split.group("dp", Rank(rank))
        assert group is not None
        records.append(replace(one, entries=entries, members={name: group}))
    answer = find(records, nowhere)
    assert answer is not None and answer.suspects[0].ranks == tuple(late) and answer.machines == {}
    assert answer.reasons[0].code == "joins-late"
    assert re.search(r"rank 4\b.*\branks 4-7\b.* 19 of 19 ", answer.reasons[0].text)
