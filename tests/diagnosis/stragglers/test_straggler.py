"""The machine whose like wait for it, by the times of flight recorders: named where it is one, again and again, else nobody."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.collectives import P2P, CollectiveRecord, RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.stragglers.fail_slow import LATE_DECIDES, Slowness
from hangdog_models.diagnosis.stragglers.straggler import find
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.flight_recorder import recent
from hangdog_models.topology import Topology, build
from hangdog_models.verdict import Kind, Verdict
from support.cases.stories import first, job, look, snapshot

CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "gloo"

MS = 1_000_000
#: What a rank works in each step, in milliseconds.
Work = Callable[[int, int], float]
REPLICAS = job(per_machine=2, dp=8)
TENSOR = job(per_machine=4, tp=4, dp=4)


def even(rank: int, step: int) -> float:
    return 100 + 2 * ((7 * rank + step) % 3)


def but(ranks: Mapping[int, float], steps: range = range(100)) -> Work:
    return lambda rank, step: even(rank, step) * (ranks.get(rank, 1) if step in steps else 1)


def ran(
    work: Work, topology: Topology, steps: int = 20, *, gloo: bool = False, long: Mapping[int, int] | None = None
) -> list[RankCounters]:
    """Steps of work, an operation of the tensor group and one of the replicas; every machine has a clock of its own.

    `long`: how many times the samples of these ranks are as long; without it the recorder tells no sizes.
    """
    chance = random.Random(steps)
    clock = {name: chance.randrange(4000) for name in topology.machines}
    logs: dict[int, list[CollectiveRecord]] = {rank: [] for rank in range(topology.world_size)}
    now = dict.fromkeys(logs, 0.0)
    used = [dim for dim in ("tp", "dp") if dim in topology.dims]
    for step in range(steps):
        for rank in logs:
            now[rank] += work(rank, step)
        for dim in used:
            for group in topology.groups[dim]:
                end = max(now[rank] for rank in group) + 1
                for rank in group:
                    at = clock[topology.machine(rank) or ""] + now[rank] + 1
                    name = f"{dim} {group[0]}"
                    took = 0 if gloo else int((end - now[rank]) * MS)
                    what = "gloo:all_reduce" if gloo else "nccl:all_reduce"
                    carried = long.get(rank, 1) if long is not None and dim == "tp" else 1
                    logs[rank].append(
                        CollectiveRecord(
                            name, step, what, True, created_ns=int(at * MS), took_ns=took,
                            input_sizes=() if long is None else ((carried * 512, 64),),
                        )
                    )  # fmt: skip
                    now[rank] = end
    groups = {rank: {f"{d} {g[0]}": g for d in used if (g := topology.group(d, Rank(rank)))} for rank in logs}
    return [
        RankCounters(Rank(rank), {}, {}, recent(log), {} if gloo else groups[rank], {}) for rank, log in logs.items()
    ]


def named(answer: Slowness | None) -> tuple[str, ...]:
    return tuple(answer.machines) if answer is not None and max(answer.machines.values()) >= LATE_DECIDES else ()


@pytest.mark.parametrize("gloo", [False, True])
def test_a_rank_that_joins_last_in_every_step_is_named_with_how_often_and_how_late(gloo: bool) -> None:
    # by launches alone, only who is late by more at times is told from its clock
    def work(rank: int, step: int) -> float:
        return even(rank, step) * (8 if rank == 5 and step % 5 else 1)

    answer = find(ran(work, REPLICAS, gloo=gloo), REPLICAS)
    # it holds the whole model, and may as well have longer samples in every step
    assert answer is not None and answer.kind is Kind.SLOW and answer.machines == {"node-2": pytest.approx(0.9)}
    assert answer.suspects[0].ranks == (5,)
    assert answer.reasons[0].code == "joins-late"
    assert all(one in answer.reasons[0].text for one in ("rank 5 on node-2 ", " 16 of 19 ", "group dp 0 "))
    assert answer.reasons[1].code == "samples-untold"


def test_its_tensor_group_waits_for_it_and_is_not_accused_with_it() -> None:
    answer = find(ran(but({6: 2}), TENSOR), TENSOR)
    assert answer is not None and answer.suspects[0].ranks == (6,) and answer.machines["node-1"] > 0.95


@pytest.mark.parametrize(
    ("long", "kind", "sure"),
    [({}, Kind.SLOW, True), ({4: 2, 5: 2, 6: 2, 7: 2}, Kind.SOFTWARE, True), (None, Kind.SLOW, False)],
)
def test_a_replica_that_is_late_on_one_machine_has_more_samples_or_a_slow_machine_as_its_operations_tell(
    long: Mapping[int, int] | None, kind: Kind, sure: bool
) -> None:
    answer = find(ran(but({4: 2, 5: 2, 6: 2, 7: 2}), TENSOR, long=long), TENSOR)
    assert answer is not None and answer.kind is kind and answer.suspects[0].ranks == (4, 5, 6, 7)
    assert (answer.machines["node-1"] > 0.95) is sure
    assert ("2.0 times" in answer.reasons[-1].text) is (kind is Kind.SOFTWARE)


def test_a_replica_that_is_late_on_all_of_its_machines_has_more_samples() -> None:
    split = job(per_machine=2, tp=4, dp=4)
    answer = find(ran(but({4: 2, 5: 2, 6: 2, 7: 2}), split), split)
    assert answer is not None and answer.kind is Kind.SOFTWARE and set(answer.machines) == {"node-2", "node-3"}
    assert named(find(ran(but({4: 2, 5: 2, 6: 2}), split), split)) == ()


def test_all_replicas_of_one_machine_have_nothing_in_common_but_it() -> None:
    answer = find(ran(but({4: 2, 5: 2}), REPLICAS), REPLICAS)
    assert answer is not None and answer.suspects[0].ranks == (4, 5) and answer.machines["node-2"] > 0.95


@pytest.mark.parametrize("strange", [1 << 63, -1, 0])
def test_sizes_that_no_tensor_has_harm_nobody(strange: int) -> None:
    records = ran(but({4: 2, 5: 2, 6: 2, 7: 2}), TENSOR, long={})
    sizes = ((strange,) * 40, (1,))
    odd = [replace(one, entries=tuple(replace(entry, input_sizes=sizes) for entry in one.entries)) for one in records]
    assert find([*odd[:1], *records[1:]], TENSOR) == find(records, TENSOR)
    assert find(odd, TENSOR) is not None


@pytest.mark.parametrize(("times", "kind", "evicted"), [(2, Kind.SOFTWARE, ()), (1, Kind.SLOW, ("node-1",))])
def test_nobody_is_evicted_for_longer_samples(times: int, kind: Kind, evicted: tuple[str, ...]) -> None:
    long = dict.fromkeys(range(4, 8), times)
    records = tuple(ran(but({4: 2, 5: 2, 6: 2, 7: 2}), TENSOR, long=long))
    looks = [look({f"{at}-{at + 3}": "gather", f"0-{at - 1},{at + 4}-15": "tensor"}) for at in (4, 8)]
    verdict = diagnose(replace(snapshot(*looks), counters=records), TENSOR)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (kind, (4, 5, 6, 7), evicted)


def test_two_looks_may_both_find_the_others_waiting_for_a_device_that_is_late_in_every_step() -> None:
    """It does not hang for that: nobody is evicted for a device that may have more samples, before a third look."""

    def verdict(slower: float, looks: int) -> Verdict:
        dumps = []
        for record in ran(but({5: slower}), REPLICAS):
            reached = {"dp 0": 19 if record.rank == 5 else 20}
            dumps.append(replace(record, enqueued={"dp 0": 20}, completed={"dp 0": 19}, started=reached))
        seen = look({"0-7": "item"})
        return diagnose(replace(snapshot(*[seen] * looks), counters=tuple(dumps)), REPLICAS)

    assert (verdict(1, 2).kind, verdict(1, 2).evict.machines) == (Kind.MACHINE, ())
    assert (verdict(1, 3).kind, verdict(1, 3).evict.machines) == (Kind.MACHINE, ("node-2",))
    assert (verdict(3, 2).kind, first(verdict(3, 2)), verdict(3, 2).evict.machines) == (Kind.SLOW, (5,), ())
    assert (verdict(3, 3).kind, verdict(3, 3).evict.machines) == (Kind.MACHINE, ("node-2",))


def test_times_that_leave_open_who_is_late_are_decided_by_looks_that_name_the_same_rank() -> None:
    """What the looks do not know stays open: a rank that holds the whole model may have longer samples."""

    wide = job(per_machine=2, dp=64)
    records = tuple(ran(but({5: 1.25}, range(15, 20)), wide))
    recorded = find(records, wide)
    assert recorded is not None and recorded.suspects[0].ranks == (5,) and recorded.machines["node-2"] < LATE_DECIDES

    def verdict(seen: int) -> Verdict:
        others = f"0-{seen - 1},{seen + 1}-127"
        looks = [look({others: place, str(seen): "user"}) for place in ("gather", "item") * 5]
        return diagnose(replace(snapshot(*looks), counters=records), wide)

    assert (verdict(5).kind, first(verdict(5)), verdict(5).evict.machines) == (Kind.SLOW, (5,), ())


def test_a_device_that_is_behind_in_two_looks_does_not_hang_while_others_get_on() -> None:
    wide = job(per_machine=8, dp=64)
    group = wide.groups["dp"][0]
    dumps = tuple(
        RankCounters(Rank(r), {"0": 7}, {"0": 6}, (), {"0": group}, {}, started={"0": 6 if r == 5 else 7})
        for r in group
    )

    def verdict(*stacks: str, last: int = 14) -> Verdict:
        looks = [look({f"0-9,{last + 1}-63": "item", f"10-{last}": stack}) for stack in stacks]
        return diagnose(replace(snapshot(*looks), counters=dumps), wide)

    assert first(verdict("item", "item")) == (5,)
    assert verdict("item", "item", "item").evict.machines == ("node-0",)
    for last in (14, 11):
        got_on = verdict("user", "other", last=last)
        assert got_on.kind in (Kind.NONE, Kind.SLOW) and not got_on.evict.machines


def test_devices_of_one_replica_that_are_behind_have_their_samples_in_common() -> None:
    staged = job(dp=16, pp=4, per_machine=4)

    def verdict(*behind: int) -> Verdict:
        dumps = [
            RankCounters(
                Rank(rank), {name: 7}, {name: 6}, (), {name: group}, {}, started={name: 6 if rank in behind else 7}
            )
            for group in staged.groups["dp"]
            for name in [f"dp {group[0]}"]
            for rank in group
        ]
        seen = look({"0-63": "item"})
        return diagnose(replace(snapshot(seen, seen), counters=tuple(dumps)), staged)

    assert verdict(5, 26).evict.machines == ("node-1", "node-6")
    assert verdict(5, 21).evict.machines == ()


@pytest.mark.parametrize(
    ("why", "work"),
    [
        ("all work alike", even),
        ("the slowest of sound devices", but({5: 1.06})),
        ("a stall is late once", but({5: 80}, range(7, 8))),
        ("late on two machines it is their work", but({2: 2, 6: 2})),
        ("another one each time", lambda rank, step: even(rank, step) * (3 if step % 8 == rank else 1)),
    ],
)
def test_nobody_is_named(why: str, work: Work) -> None:
    assert named(find(ran(work, REPLICAS), REPLICAS)) == (), why


def test_two_stalls_are_named_and_are_no_habit_that_evicts() -> None:
    answer = find(ran(but({5: 80}, range(7, 9)), REPLICAS), REPLICAS)
    assert answer is not None and named(answer) == ("node-2",) and answer.machines["node-2"] < 0.8


def test_the_first_rank_alone_may_be_writing_logs_and_is_named_only() -> None:
    answer = find(ran(but({0: 3}), REPLICAS), REPLICAS)
    assert answer is not None and answer.machines["node-0"] == pytest.approx(0.9)


def test_a_role_with_more_work_in_every_replica_is_nobodys_fault() -> None:
    assert named(find(ran(but(dict.fromkeys((0, 4, 8, 12), 2.0)), TENSOR), TENSOR)) == ()


def test_whose_dump_is_lost_is_not_named_and_nobody_is_in_its_place() -> None:
    records = [record for record in ran(but({5: 3}), REPLICAS) if record.rank != 5]
    assert named(find(records, REPLICAS)) == ()


def test_who_waited_for_another_stage_was_not_late_by_itself() -> None:
    def waiting(record: RankCounters) -> RankCounters:
        """Rank 5 is late as before, but because it received so late."""
        entries: list[CollectiveRecord] = []
        for entry in record.entries:
            late = int(even(5, entry.sequence) * 2 * MS) if record.rank == 5 else 1
            entries += [
                CollectiveRecord("pp", entry.sequence, "nccl:recv 1<-0", True, p2p=True, created_ns=1, took_ns=late),
                entry,
            ]
        return RankCounters(record.rank, {}, {}, recent(entries), record.members, {})

    records = [waiting(record) for record in ran(but({5: 3}), REPLICAS)]
    assert records[0].entries[-1].apart_ns == ((f"pp{P2P}", 1),)
    assert named(find(records, REPLICAS)) == ()


def test_on_hosts_that_compute_a_turn_of_the_scheduler_is_nobodys_fault() -> None:
    """Eight ranks of a real job on two cores: one came 16 ms late in 54 of 62 steps, 40 % of its time, and nothing was wrong."""

    def work(rank: int, step: int) -> float:
        return (even(rank, step) + (160 if rank == 5 and step % 5 else 0)) / 10

    assert named(find(ran(work, REPLICAS, steps=60), REPLICAS)) == ("node-2",)
    assert find(ran(work, REPLICAS, steps=60, gloo=True), REPLICAS) is None


def test_who_comes_less_than_a_turn_of_the_scheduler_late_is_not_late() -> None:
    def late_by(milliseconds: int) -> Work:
        return lambda rank, step: even(rank, step) + (milliseconds if rank == 5 and step % 5 else 0)

    late, in_turn = (find(ran(late_by(by), REPLICAS, steps=60, gloo=True), REPLICAS) for by in (160, 80))
    assert named(late) == ("node-2",) and in_turn is None


def test_samples_that_explain_a_quarter_of_the_longer_work_are_not_its_reason() -> None:
    long = dict.fromkeys(range(4, 8), 2)
    answer = find(ran(but(dict.fromkeys(range(4, 8), 4)), TENSOR, long=long), TENSOR)
    assert answer is not None and answer.kind is Kind.SLOW and answer.suspects[0].ranks == (4, 5, 6, 7)


def test_records_without_times_tell_nothing() -> None:
    assert find([], REPLICAS) is None
    bare = [RankCounters(Rank(0), {}, {}, (CollectiveRecord("0", 1, "nccl:all_reduce", True),), {}, {})]
    assert find(bare, REPLICAS) is None


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the repository (../shared/corpus)")
@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("straggler-fr", ("node-3",)),
        ("fsdp_healthy", ()),
        ("native_deadlock-fr", ()),
        ("gc-fr", ()),
        ("dataloader-fr", ()),
    ],
)
def test_recorded_gloo_jobs(case: str, expected: tuple[str, ...]) -> None:
    seen, layout = open_bundle(CORPUS / case)
    topology, _ = build(layout, seen.highest_rank())
    assert named(find(seen.counters, topology)) == expected
