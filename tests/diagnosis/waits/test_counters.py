"""Counters say exactly who is inside an operation, who has not reached it, and when two groups are crossed."""

from dataclasses import replace

import pytest

from hangdog_models.collectives import WATCHDOG, CollectiveRecord, RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.observe.rank_state_reader import RankStateReader
from hangdog_models.diagnosis.waits.collective_counters import count
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stack import ProcessTrace
from hangdog_models.topology import Topology
from hangdog_models.verdict import Act, Kind, Verdict
from support.cases.stories import job, look, snapshot, trace, twice

FOUR = job(dp=4, per_machine=1)


def record(rank: int, enqueued: dict[str, int], completed: dict[str, int], *entries: CollectiveRecord) -> RankCounters:
    return RankCounters(Rank(rank), enqueued, completed, entries, {}, {})


def counted(
    records: list[RankCounters], topology: Topology = FOUR
) -> list[tuple[str | None, tuple[int, ...], tuple[int, ...]]]:
    return [(hold.dim, hold.inside, hold.awaited) for hold in count(records, {}, topology).holds]


def behind(rank: int) -> list[RankCounters]:
    return [record(r, {"0": 5 if r == rank else 7}, {"0": 5 if r == rank else 6}) for r in range(4)]


def test_who_enqueued_less_is_awaited() -> None:
    assert counted(behind(2)) == [("dp", (0, 1, 3), (2,))]


def test_who_kept_no_record_of_the_group_that_all_use_is_awaited_too() -> None:
    assert counted([one for one in behind(2) if one.rank != 2]) == [("dp", (0, 1, 3), (2,))]


def test_a_group_of_few_is_not_the_worlds() -> None:
    pair = [record(0, {"1": 3}, {"1": 2}), record(1, {"1": 2}, {"1": 2})]
    assert counted(pair, job(dp=8, per_machine=1)) == [("group 1", (0,), (1,))]


def stuck_whole(records: list[RankCounters], topology: Topology, *looks: list[ProcessTrace]) -> list[bool]:
    read = RankStateReader(packaged(), topology.groups)
    return [hold.joined for hold in count(records, read.look(looks[0]) if looks else {}, topology).holds]


def test_one_rank_alone_in_a_group_that_nobody_lists_has_not_joined_it() -> None:
    """gloo's recorder lists no members, and a collective of one rank ends at once: others are yet to come."""
    records = [record(0, {"1": 6, "2": 6}, {"1": 6, "2": 5}), *(record(r, {"1": 7}, {"1": 6}) for r in range(1, 4))]
    assert stuck_whole(records, FOUR) == [False, False]
    one = replace(record(0, {"g": 3}, {"g": 2}), members={"g": (Rank(0),)})
    assert stuck_whole([one], FOUR) == [True]


def test_a_group_whose_members_are_those_of_the_few_logs_there_are_may_have_more() -> None:
    """Logs of two ranks name a group, and others that kept none stand where these do."""
    records = [record(r, {"2": 9}, {"2": 8}) for r in range(2)]
    eight = job(dp=8, per_machine=1)
    alike, apart = look({"0-7": "metrics"}), look({"0-1": "metrics", "2-7": "loader"})
    assert stuck_whole(records, eight, alike) == [False]
    assert stuck_whole(records, eight, apart) == [True]


def test_a_group_that_only_those_used_whom_all_others_wait_for_may_have_these_too() -> None:
    """Short recorders of a gloo job: three of eight are in one group's operation, the others wait for them in another's."""
    eight = job(dp=8, per_machine=1)
    few = [record(r, {"1": 6, "2": 9}, {"1": 6, "2": 8}) for r in (0, 3, 4)]
    rest = [record(r, {"1": 7}, {"1": 6}) for r in (1, 2, 5, 6, 7)]
    assert stuck_whole([*few, *rest], eight) == [False, False]
    beside = [record(r, {"1": 7, "3": 9}, {"1": 6, "3": 9}) for r in (1, 2, 5, 6, 7)]
    assert stuck_whole([*few, *beside], eight) == [False, True]


def test_listed_members_are_believed() -> None:
    one = replace(record(0, {"g": 3}, {"g": 2}), members={"g": (Rank(0), Rank(3))})
    assert counted([one]) == [("group g", (0,), (3,))]


@pytest.mark.parametrize(("operation", "awaited"), [("all_gather", False), ("broadcast", True)])
def test_nobody_is_awaited_in_what_has_ended_on_others_if_it_ends_on_all_at_once(operation: str, awaited: bool) -> None:
    """Dumps of a job that moves, written one after another: two ranks have completed what a third one is in."""
    under_way = CollectiveRecord("0", 6, f"gloo:{operation}", done=False)
    dumps = [record(0, {"0": 9}, {"0": 9}), record(1, {"0": 9}, {"0": 9})]
    dumps += [record(2, {"0": 6}, {"0": 5}, under_way), record(3, {"0": 5}, {"0": 5})]
    assert counted(dumps) == ([("dp", (2,), (3,))] if awaited else [])


def test_what_is_complete_holds_nobody() -> None:
    assert counted([record(rank, {"0": 7}, {"0": 7}) for rank in range(4)]) == []


def test_the_operation_is_named_and_point_to_point_numbers_are_others() -> None:
    send = CollectiveRecord("0", 7, "send", done=False, p2p=True)
    reduce_ = CollectiveRecord("0", 7, "all_reduce", done=False)
    holds = count([record(0, {"0": 7}, {"0": 6}, send, reduce_), record(1, {"0": 6}, {"0": 6})], {}, job(dp=2)).holds
    assert holds[0].what == "all_reduce 7 of process group 0"


def test_the_one_behind_is_named_from_counters_alone() -> None:
    verdict = diagnose(replace(snapshot(), counters=tuple(behind(2))), FOUR)
    assert verdict.suspects[0].ranks == (2,)
    assert verdict.evict.machines == ()  # counters tell who is behind, not what holds it


def test_crossed_groups_are_code_even_in_one_look() -> None:
    """Rank 3 left out one all-reduce of group 0 and waits in group 1, where the others have yet to come."""
    ahead = record(3, {"0": 26, "1": 3}, {"0": 26, "1": 2})
    others = [record(rank, {"0": 27, "1": 2}, {"0": 26, "1": 2}) for rank in range(3)]
    story = snapshot(look({"0-2": "metrics", "3": "barrier"}))
    verdict = diagnose(replace(story, counters=(*others, ahead)), FOUR)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.SOFTWARE, (3,), ())
    assert diagnose(story, FOUR).kind is Kind.UNDETERMINED  # the stacks alone leave it open


def test_counters_of_a_healthy_group_read_at_different_moments_convict_nobody() -> None:
    skewed = [record(rank, {"0": 100 + rank // 2}, {"0": 99 + rank // 2}) for rank in range(4)]
    story = snapshot(look({"0-1": "gather", "2-3": "scatter"}))
    assert diagnose(replace(story, counters=tuple(skewed)), FOUR).kind is Kind.UNDETERMINED


def nccl(rank: int, enqueued: int, started: int, completed: int) -> RankCounters:
    return replace(record(rank, {"0": enqueued}, {"0": completed}), started={"0": started})


def test_hosts_that_ran_ahead_are_all_in_the_oldest_operation() -> None:
    assert counted([nccl(rank, 10 + rank, 7, 6) for rank in range(4)]) == [("dp", (0, 1, 2, 3), ())]


def test_a_device_that_has_not_started_what_its_host_launched_is_behind_and_named() -> None:
    """All hosts read the loss back; rank 2's GPU never began the all-reduce that all of them launched."""
    records = [nccl(rank, 9, 6 if rank == 2 else 7, 6) for rank in range(4)]
    story = snapshot(*3 * [look({"0-3": "item"})])
    assert counted(records) == [("dp", (0, 1, 3), (2,))]
    verdict = diagnose(replace(story, counters=tuple(records)), FOUR)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.MACHINE, (2,), ("node-2",))
    assert verdict.because[0].code == "own-device-behind"
    assert diagnose(story, FOUR).kind is not Kind.MACHINE  # the stacks are all alike


def test_a_device_that_is_behind_in_an_exchange_between_experts_is_named_and_not_evicted() -> None:
    """Some experts are asked more than others, and have more to compute before it."""
    exchange = (CollectiveRecord("0", 7, "nccl:all_to_all", False),)
    records = tuple(replace(nccl(rank, 9, 6 if rank == 2 else 7, 6), entries=exchange) for rank in range(4))
    story = snapshot(look({"0-3": "item"}), look({"0-3": "item"}))
    verdict = diagnose(replace(story, counters=records), FOUR)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.MACHINE, (2,), ())


def test_a_host_waiting_for_its_device_with_nothing_under_way_is_held_up_by_it() -> None:
    records = [nccl(rank, 6 if rank == 2 else 7, 6 if rank == 2 else 7, 6) for rank in range(4)]
    story = snapshot(look({"0-3": "item"}), look({"0-3": "item"}))
    verdict = diagnose(replace(story, counters=tuple(records)), FOUR)
    assert (verdict.kind, verdict.suspects[0].ranks) == (Kind.MACHINE, (2,))


@pytest.mark.parametrize(
    ("innermost", "shift", "looks", "held_up"),
    [
        ("augment data.py", 0, 3, True),
        ("augment data.py", 0, 2, False),
        ("forward torch/nn/modules/linear.py", 0, 3, True),
        ("augment data.py", 1, 3, False),
        ("file_digest hashlib.py", 0, 3, False),
    ],
)
def test_who_runs_in_c_waits_for_its_device_only_where_it_may(
    innermost: str, shift: int, looks: int, held_up: bool
) -> None:
    """A hash, NumPy and a wait for the device spin alike: they get on, are in a module of Python's own, or end sooner."""
    verdict = runs_in_c(innermost, shift, looks=looks)
    assert (verdict.because[0].code == "own-device-behind", verdict.evict.machines == ("node-2",)) == (held_up, held_up)


@pytest.mark.parametrize(("others", "library"), [("barrier", "nccl"), ("metrics", "gloo"), ("barrier", "gloo")])
def test_who_runs_in_c_computes_where_the_others_let_it_or_no_device_is_known_of(others: str, library: str) -> None:
    """A recorded job without GPUs: rank 0 reviewed, in one large product, while all others were at a barrier."""
    verdict = runs_in_c("augment data.py", 0, others, library)
    assert verdict.because[0].code not in ("own-device-behind", "launches-behind") and not verdict.evict.machines


def runs_in_c(innermost: str, shift: int, others: str = "metrics", library: str = "nccl", looks: int = 2) -> Verdict:
    """Rank 2 at several looks, its line `shift` further in each, while the others wait for it; all recorded."""
    entry = CollectiveRecord("0", 6, f"{library}:all_reduce", done=True)
    records = tuple(
        replace(nccl(rank, 6 if rank == 2 else 7, 6 if rank == 2 else 7, 6), entries=(entry,)) for rank in range(4)
    )
    calls = ["<module> train.py", "step train.py", innermost]
    runs = [trace(2, calls, state="R", active=True, shift=at * shift) for at in range(looks)]
    story = snapshot(*([*look({"0-1,3": others}), one] for one in runs))
    return diagnose(replace(story, counters=records), FOUR)


def test_a_launch_that_lasts_with_nothing_under_way_is_held_up_by_the_device_or_its_driver() -> None:
    """A full queue is no excuse where the device has done all that any group was given."""
    forward = trace(2, ["<module> train.py", "_call_impl torch/nn/modules/module.py", "forward model.py"], state="S")

    story = snapshot(*3 * [[*look({"0-1,3": "item"}), forward]])
    records = tuple(nccl(rank, 6 if rank == 2 else 7, 6 if rank == 2 else 7, 6) for rank in range(4))
    verdict = diagnose(replace(story, counters=records), FOUR)
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("node-2",))
    assert verdict.because[0].code == "own-device-behind"
    assert not diagnose(story, FOUR).evict.machines  # nobody knows then what fills the queue


@pytest.mark.parametrize("place", ["metrics", "barrier"])
def test_who_waits_at_its_peers_line_and_lacks_their_call_is_named_and_not_evicted(place: str) -> None:
    """It left a collective out, or is held up inside of the call. While a job may move, a dump may be older than a stack."""
    records = tuple(nccl(rank, 6 if rank == 2 else 7, 6 if rank == 2 else 7, 6) for rank in range(4))
    story = replace(snapshot(look({"0-3": place})), counters=records)
    verdict = diagnose(replace(story, job=replace(story.job, stalled_s=900.0)), FOUR)
    assert verdict.culprit is not None
    assert (verdict.culprit.ranks, verdict.evict.machines) == ((2,), ())
    assert verdict.because[0].code == "lacks-a-call"
    assert {Kind.MACHINE, Kind.SOFTWARE} <= set(map(str, verdict.causes))
    assert diagnose(story, FOUR).because[0].code != "lacks-a-call"


def test_all_joined_and_nothing_completes_is_the_group() -> None:
    records = [nccl(rank, 7, 7, 6) for rank in range(4)]
    story = snapshot(look({"0-3": "item"}), look({"0-3": "item"}))
    verdict = diagnose(replace(story, counters=tuple(records)), FOUR)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.GROUP, (0, 1, 2, 3), ())


def test_an_operation_that_some_have_left_is_not_stuck_for_want_of_anybody() -> None:
    """Read at different moments: ranks 0 and 1 are still in 7, the others have left it."""
    holds = count(
        [nccl(rank, 7 if rank < 2 else 8, 7 if rank < 2 else 8, 6 if rank < 2 else 7) for rank in range(4)], {}, FOUR
    ).holds
    assert [(hold.inside, hold.awaited, hold.joined) for hold in holds] == [
        ((0, 1), (), False),
        ((2, 3), (0, 1), False),
    ]


def test_a_receive_without_its_send_waits_for_the_peer() -> None:
    groups: dict[str, tuple[Rank, ...]] = {"pp": tuple(Rank(rank) for rank in range(4))}
    receive = CollectiveRecord("pp", 3, "nccl:recv 1<-0", done=False, p2p=True, started=True)
    send = CollectiveRecord("pp", 3, "nccl:send 0->1", done=False, p2p=True, started=True)
    alone = replace(record(1, {"pp": 1}, {"pp": 1}, receive), members=groups)
    other = replace(record(0, {"pp": 1}, {"pp": 1}), members=groups)
    assert counted([other, alone]) == [("p2p", (1,), (0,))]
    assert counted([replace(other, entries=(send,)), alone]) == [("p2p", (0, 1), ())]


def test_a_lost_dump_of_one_that_waits_like_all_others_is_no_reason_to_blame_it() -> None:
    shape = job(dp=16, per_machine=1)
    told = [replace(one, started={"0": 7}) for one in (record(rank, {"0": 7}, {"0": 6}) for rank in range(15))]
    waiting = look({"0-15": "metrics"})
    verdict = diagnose(replace(snapshot(waiting, waiting), counters=tuple(told)), shape)
    assert (verdict.kind, verdict.suspects[0].ranks) == (Kind.GROUP, tuple(range(16)))
    elsewhere = look({"0-14": "metrics", "15": "disk"})
    verdict = diagnose(replace(snapshot(elsewhere, elsewhere), counters=tuple(told)), shape)
    assert (verdict.kind, verdict.suspects[0].ranks) == (Kind.MACHINE, (15,))


def test_a_lost_dump_is_assumed_in_one_operation_only() -> None:
    """Rank 3 is in the wide group's operation, of which more ranks tell, so in its pair it is late."""
    world = [record(rank, {"0": 7}, {"0": 6}) for rank in range(3)]
    members = {"0": tuple(map(Rank, range(4))), "pair": (Rank(2), Rank(3))}
    world[2] = record(2, {"0": 7, "pair": 4}, {"0": 6, "pair": 3})
    told = [replace(one, members=members, started={"0": 7, "pair": 4}) for one in world]
    seen = RankStateReader(packaged()).look(look({"0-3": "item"}))
    holds = {hold.inside: hold for hold in count(told, seen, FOUR).holds}
    assert holds[tuple(map(Rank, range(4)))].assumed == 1
    assert holds[(Rank(2),)].awaited == (Rank(3),)


def test_a_group_that_joined_holds_nobody_up_whose_members_are_all_at_work_of_their_own() -> None:
    """All captured ranks launched the operation and then stood still at their data loader: nobody at all waits."""
    seen, group = [trace(rank, "loader", state="S") for rank in (0, 1)], (Rank(0), Rank(1))
    counters = tuple(RankCounters(rank, {"0": 5}, {"0": 4}, (), {"0": group}, {}) for rank in group)
    verdict = diagnose(replace(snapshot(seen, seen), counters=counters), job(dp=4, per_machine=2))
    assert verdict.suspects[0].ranks == group and verdict.evict.machines == ()


def test_a_lost_dump_of_who_stands_where_its_peers_wait_makes_no_second_culprit() -> None:
    """The last of each four tensor ranks gathers with rank 31, which is stopped, and the other three wait for it."""
    topology = job(tp=4, dp=8, per_machine=4)
    last = tuple(map(Rank, range(3, 32, 4)))

    def dumped(rank: int) -> RankCounters:
        four = f"tp{rank // 4}"
        members = {four: tuple(map(Rank, range(rank // 4 * 4, rank // 4 * 4 + 4))), "dp": last}
        gathers = rank % 4 == 3
        counts = {four: 9, "dp": 9} if gathers else {four: 9}
        reached = {four: 4, "dp": 7} if gathers else {four: 5}
        done = {four: 4, "dp": 6} if gathers else {four: 4}
        return RankCounters(Rank(rank), counts, done, (), members, {}, reached)

    others = ["<module> train.py", "forward model.py", "linear torch/nn/functional.py"]
    gathers = ["<module> train.py", "backward model.py", "linear torch/nn/functional.py"]
    stacks = [trace(rank, gathers if rank % 4 == 3 else others, state="S") for rank in range(31)]
    stopped = trace(31, ["<module> train.py", "batch train.py"], state="T")
    records = [dumped(rank) for rank in range(32) if rank not in (7, 31)]
    verdict = diagnose(replace(snapshot([*stacks, stopped], [*stacks, stopped]), counters=tuple(records)), topology)
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("node-7",))
    assert [suspect.ranks for suspect in verdict.suspects] == [(31,)]


def test_where_no_device_has_begun_whoever_has_not_launched_it_is_awaited() -> None:
    """Recorders whose last operations are scheduled: by the counts three ranks launched 8, and rank 2 stopped after 7."""
    told = [nccl(r, 7 if r == 2 else 8, 7, 7) for r in range(4)]
    assert counted(told) == [("dp", (0, 1, 3), (2,))]
    assert counted([nccl(r, 8, 7, 7) for r in range(4)]) == [], (
        "all launched it, and no device has begun: all may compute"
    )


def logged(rank: int, least: int) -> RankCounters:
    return replace(record(rank, {"1": 9}, {"1": 8}), source=WATCHDOG, least_sizes={"1": least})


def test_a_group_whose_member_has_a_higher_number_has_more_members_than_those_that_logged() -> None:
    eight = job(dp=8, per_machine=1)
    assert stuck_whole([logged(3, 8), logged(7, 8)], eight, look({"0-7": "loader"})) == [False]
    assert stuck_whole([logged(3, 2), logged(7, 2)], eight, look({"0-7": "loader"})) == [True]


def test_ranks_that_left_nothing_may_be_members_of_a_group_that_only_logs_tell_of() -> None:
    two_machines = job(dp=16, per_machine=8)
    assert stuck_whole([logged(rank, 8) for rank in range(8)], two_machines) == [False]
    verdict = diagnose(replace(snapshot(), counters=tuple(logged(rank, 8) for rank in range(8))), two_machines)
    assert verdict.evict.machines == () and verdict.kind is not Kind.GROUP


def test_counters_of_one_moment_evict_nobody() -> None:
    """Two looks may both meet the sync of a healthy step, and one rank's device is the last in it."""
    records = tuple(nccl(rank, 9, 6 if rank == 2 else 7, 6) for rank in range(4))
    one_moment = replace(twice(look({"0-3": "item"})), counters=records)
    verdict = diagnose(one_moment, FOUR)
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ())
    assert 0.7 < verdict.confidence < 0.85
    assert verdict.next[0].do is Act.COLLECT and "flight recorder dumps" in verdict.next[0].why
    for looks, evicted in ((4, ()), (6, ("node-2",))):  # it moved before, so it may be slow
        moved = snapshot(look({"0-3": "gather"}), *looks * [look({"0-3": "item"})])
        assert diagnose(replace(moved, counters=records), FOUR).evict.machines == evicted
    for known in (
        replace(one_moment, stood=tuple(map(Rank, range(4)))),
        replace(snapshot(*3 * [look({"0-3": "item"})]), counters=records),
        replace(one_moment, job=replace(one_moment.job, stalled_s=60.0)),
    ):
        assert diagnose(known, FOUR).evict.machines == ("node-2",)


def test_a_device_that_is_behind_in_one_look_is_evicted_only_where_that_lasts() -> None:
    """In each step of a healthy job some device is the last to come."""
    records = tuple(nccl(rank, 9, 6 if rank == 2 else 7, 6) for rank in range(4))
    once = replace(snapshot(look({"0-3": "item"})), counters=records)
    stated = replace(once, job=replace(once.job, stalled_s=900.0))
    dumps = replace(snapshot(), counters=records)
    found = [diagnose(one, FOUR).evict.machines for one in (once, stated, dumps)]
    assert found == [(), ("node-2",), ("node-2",)]
