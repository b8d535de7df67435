"""What NCCL's profiler shows of each rank: whose device has not begun, who never came, and where a collective is stuck."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.collectives import PROFILER, CollectiveRecord, RankCounters, RasCommunicator, RasMember, RasReport
from hangdog_models.diagnosis.judge import diagnose, investigate
from hangdog_models.diagnosis.waits import profiled
from hangdog_models.diagnosis.waits.collective_counters import count
from hangdog_models.progress.collective_progress import CollectiveProgress, Phase, RankProgress, Transfer
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Verdict
from support.cases.reasons import codes
from support.cases.rings import (
    PROGRESS,
    around,
    communicator,
    held_up,
    hung,
    operation,
    ring,
    stuck,
    transfer,
    without_kernels,
    world,
)
from support.cases.stories import job, look, snapshot, trace

FOUR = job(dp=4, per_machine=1)
SAME = snapshot(look({"0-3": "item"}), look({"0-3": "item"}))
LAUNCHED = Phase.LAUNCHED

Holds = list[tuple[str | None, tuple[int, ...], tuple[int, ...]]]


def holds(rings: Sequence[RankProgress], topology: Topology = FOUR) -> Holds:
    records = profiled.believed([], profiled.count(rings, {}, topology))
    return [(hold.dim, hold.inside, hold.awaited) for hold in count(records, {}, topology).holds]


def judged(rings: Sequence[RankProgress], *records: RankCounters) -> Verdict:
    return diagnose(replace(SAME, progress=tuple(rings), counters=records), FOUR)


def untimed(rank: int) -> RankCounters:
    """A recorder's word of the same: launched, not complete, and whether a device has begun is not known."""
    entry = CollectiveRecord("0", 8, "nccl:all_reduce", False, ((4,),), ("Float",))
    return RankCounters(Rank(rank), {"0": 8}, {"0": 7}, (entry,), {"0": tuple(map(Rank, range(4)))}, {})


def test_a_device_that_has_not_begun_what_its_host_launched_is_behind_and_named() -> None:
    assert holds(hung(2)) == [("dp", (0, 1, 3), (2,))]
    verdict = judged(hung(2))
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.MACHINE, (2,), ("node-2",))
    assert verdict.because[0].code == "own-device-behind"


def test_hosts_that_run_ahead_of_a_device_that_hangs_change_nothing() -> None:
    flights = [[operation(7), operation(8, LAUNCHED), operation(9, LAUNCHED)] for _ in range(4)]
    flights[2] = [operation(7, LAUNCHED), operation(8, LAUNCHED, idle_s=0.1)]
    assert holds(world(*flights, collectives=[10, 10, 9, 10])) == [("dp", (0, 1, 3), (2,))]


def test_who_never_enqueued_is_behind() -> None:
    flights = [[], [operation(7)], [operation(7)], [operation(7)]]
    rings = world(*flights, collectives=[7, 8, 8, 8])
    assert holds(rings) == [("dp", (1, 2, 3), (0,))]
    loads = snapshot(*[look({"1-3": "item", "0": "user"})] * 2)
    verdict = diagnose(replace(loads, progress=rings), FOUR)
    assert verdict.suspects[0].ranks == (0,)


def test_a_host_that_is_about_to_launch_has_not_come_and_no_device_is_behind() -> None:
    assert holds(hung(2, Phase.ENQUEUED)) == [("dp", (0, 1, 3), (2,))]
    records = profiled.believed([], profiled.count(hung(2, Phase.ENQUEUED), {}, FOUR))
    assert records[2].enqueued == records[2].completed == {"0000000000000abc": 6}


@pytest.mark.parametrize("idle_s", [0.004, 3.0])
def test_what_moved_a_moment_ago_accuses_nobody(idle_s: float) -> None:
    """A healthy job: an operation is in flight, and the ranks differ by one."""
    flights = [
        [operation(7, idle_s=idle_s)],
        [],
        [operation(7, LAUNCHED, idle_s=idle_s)],
        [operation(6, idle_s=idle_s)],
    ]
    rings = world(*flights, collectives=[8, 7, 8, 7])
    assert holds(rings) == []
    verdict = judged(rings)
    assert verdict.evict.machines == () and verdict.kind is Kind.NONE
    assert diagnose(SAME, FOUR).kind is not Kind.NONE  # the stacks alone do not show it


def test_one_rank_that_has_just_come_shows_that_the_communicator_is_at_work() -> None:
    flights = [[operation(7)], [operation(7)], [operation(7)], [operation(7, idle_s=0.01)]]
    assert holds(world(*flights, collectives=[8] * 4)) == []


def test_a_process_of_whose_kernels_nccl_tells_nothing_is_no_device_that_hangs() -> None:
    rings = hung(2)
    silent = ring(2, without_kernels(rings[2].communicators[0]))
    assert holds([*rings[:2], silent, rings[3]])[0][2] == ()


def test_a_communicator_of_whose_kernels_no_rank_tells_shows_none_as_behind() -> None:
    other = [communicator(rank, 4, 3, number=0xDEF) for rank in range(4)]
    rings = [ring(rank, without_kernels(hung(2)[rank].communicators[0]), other[rank]) for rank in range(4)]
    assert holds(rings) == []


def test_a_communicator_that_one_rank_gave_up_tells_nothing() -> None:
    """It was aborted there after it had waited as the others do: that is no sign that it came further."""
    rings = hung(2)
    gone = ring(0, replace(rings[0].communicators[0], ended=True, in_flight=()))
    assert holds([gone, *rings[1:]]) == []


def test_a_rank_whose_ring_had_no_place_for_a_communicator_is_not_awaited_in_it() -> None:
    rings = hung(2)
    other = [communicator(rank, 4, 3, number=0xDEF) for rank in range(4)]
    full = ring(3, other[3])
    assert holds([ring(rank, rings[rank].communicators[0], other[rank]) for rank in range(3)] + [full]) == []


def test_a_rank_without_a_ring_is_a_member_by_the_layout() -> None:
    assert holds([one for one in hung(2) if one.rank != 2]) == [("dp", (0, 1, 3), (2,))]


def test_members_of_a_smaller_communicator_go_by_their_numbers_in_it() -> None:
    """Number 1 of the communicator is rank 3, whose device has not begun."""
    pair = [ring(1, communicator(0, 2, 8, operation(7))), ring(3, communicator(1, 2, 8, operation(7, LAUNCHED)))]
    done = [communicator(number, 2, 5, number=0xDEF) for number in (0, 1)]
    pair = [ring(one.rank, *one.communicators, done[at]) for at, one in enumerate(pair)]
    assert holds(pair) == [("group 0000000000000abc", (1,), (3,))]


def test_a_send_that_no_device_has_begun_is_awaited_by_its_receiver() -> None:
    receive = operation(4, function="Recv", peer=0)
    send = operation(4, LAUNCHED, function="Send", peer=1)
    rings = [ring(0, communicator(0, 2, 0, send, p2ps=5)), ring(1, communicator(1, 2, 0, receive, p2ps=5))]
    assert holds(rings, job(pp=2, per_machine=1)) == [("p2p", (1,), (0,))]


def test_a_device_that_is_behind_in_an_all_to_all_is_named_and_not_evicted() -> None:
    """NCCL makes it of sends and receives; some experts are asked more than others, and have more to compute before it."""
    rings = []
    for rank in range(4):
        phase = LAUNCHED if rank == 2 else Phase.RUNNING
        calls = [(way, peer) for peer in range(4) if peer != rank for way in ("Send", "Recv")]
        flight = [operation(at, phase, function=way, peer=peer) for at, (way, peer) in enumerate(calls)]
        rings.append(ring(rank, communicator(rank, 4, 3, number=0xDEF), communicator(rank, 4, 0, *flight, p2ps=6)))
    verdict = judged(rings)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.MACHINE, (2,), ())
    pairs = [one for one in holds(rings) if one[2] == (2,)]
    assert pairs and {one[1] for one in pairs} == {(0,), (1,), (3,)}


def test_a_collective_goes_by_its_number_among_collectives_where_messages_pass_as_well() -> None:
    """Ranks of a pipeline send and receive different numbers of messages in one communicator."""
    records = profiled.count(
        [
            ring(0, communicator(0, 2, 3, operation(12), p2ps=10)),
            ring(1, communicator(1, 2, 3, operation(6, LAUNCHED), p2ps=4)),
        ],
        {},
        job(pp=2, per_machine=1),
    ).records
    assert [record.enqueued for record in records] == [{"0000000000000abc": 2}] * 2
    assert [record.started for record in records] == [{"0000000000000abc": 2}, {"0000000000000abc": 1}]


def test_who_has_done_a_collective_is_not_awaited_in_it_whatever_messages_pass() -> None:
    """A broadcast ends on its root before the others have it."""
    receive = operation(9, LAUNCHED, function="Recv", peer=0)
    rings = [
        ring(0, communicator(0, 2, 3, operation(12, function="Broadcast"), p2ps=10)),
        ring(1, communicator(1, 2, 3, receive, p2ps=10)),
    ]
    assert holds(rings, job(pp=2, per_machine=1)) == [("pp", (0,), ())]


def test_the_device_that_neither_takes_nor_gives_is_named_where_all_have_begun() -> None:
    assert holds(stuck(around(2))) == [("dp", (0, 1, 3), (2,))]
    verdict = judged(stuck(around(2)))
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.MACHINE, (2,), ("node-2",))
    assert verdict.because[0].code == "own-device-behind"
    assert verdict.because[0].text.startswith("rank 2 ") and "all_reduce 7 " in verdict.because[0].text


def test_data_that_is_ready_and_does_not_leave_is_held_up_between_two() -> None:
    assert holds(stuck(held_up(1))) == [("p2p", (1, 2), ()), ("dp", (0, 3), (1, 2))]
    verdict = judged(stuck(held_up(1)))
    assert (verdict.kind, verdict.suspects[0].ranks) == (Kind.GROUP, (1, 2))
    assert verdict.because[0].code == "joined-and-stuck"
    assert re.search(r"\brank 1 .*\brank 2\b", verdict.because[0].text), "from whom the data does not reach whom"


def test_what_was_sent_and_has_not_arrived_is_held_up_between_two() -> None:
    lost = held_up(3)
    lost[3][1] = transfer("to", 0, 6, 5, 5, 4)
    assert holds(stuck(lost)) == [("p2p", (0, 3), ()), ("dp", (1, 2), (0, 3))]


def test_transfers_of_which_each_waits_for_the_next_one_leave_the_group_whole() -> None:
    waiting = {
        rank: [transfer("from", (rank - 1) % 4, 5, 4, 4, 4), transfer("to", (rank + 1) % 4, 5, 4, 4, 4)]
        for rank in range(4)
    }
    assert holds(stuck(waiting)) == [("dp", (0, 1, 2, 3), ())]
    assert judged(stuck(waiting)).kind is Kind.GROUP


@pytest.mark.parametrize("state", ["T", "Z"])
def test_a_process_that_is_stopped_or_dead_is_inside_of_nothing(state: str) -> None:
    """Its kernel runs on, and its proxy thread does not: its ring shows it among the others."""
    traces = [trace(rank, "item", state=state if rank == 2 else "S") for rank in range(4)]
    told = diagnose(replace(snapshot(traces, traces), progress=stuck({rank: [] for rank in range(4)})), FOUR)
    stopped = state == "T"
    kind, evicted = (Kind.MACHINE, ("node-2",)) if stopped else (Kind.SOFTWARE, ())
    assert (told.kind, told.suspects[0].ranks, told.evict.machines) == (kind, (2,), evicted)
    assert [(group.dim, group.ranks) for group in told.groups] == [("dp", (0, 1, 2, 3))]


def messages(send: Transfer, receive: Transfer) -> tuple[RankProgress, ...]:
    """Rank 0 sends to rank 1, and both devices have begun it."""
    sends = operation(4, Phase.RUNNING, send, function="Send", peer=1)
    receives = operation(4, Phase.RUNNING, receive, function="Recv", peer=0)
    return ring(0, communicator(0, 2, 0, sends, p2ps=5)), ring(1, communicator(1, 2, 0, receives, p2ps=5))


@pytest.mark.parametrize(
    ("send", "found"),
    [
        (transfer("to", 1, 1, 0, 0, 0), [("p2p", (1,), (0,))]),  # its device has written nothing
        (transfer("to", 1, 1, 1, 0, 0), [("p2p", (0, 1), ())]),  # what it has written does not leave
        (transfer("to", 1, 1, 1, 1, 0), [("p2p", (0, 1), ())]),
    ],
)
def test_a_message_is_held_up_by_its_senders_device_or_on_the_way(send: Transfer, found: Holds) -> None:
    assert holds(messages(send, transfer("from", 0, 1, 0, 0, 0)), job(pp=2, per_machine=1)) == found


def test_a_gloo_barrier_is_no_contradiction_to_rings_that_know_nothing_of_it() -> None:
    """A ring knows NCCL's operations alone: that it shows none does not make it older than the stacks."""
    traces = [*look({"0-2": "barrier"}), trace(3, "user")]
    idle = world(*[[]] * 4, collectives=[8] * 4)
    alone = diagnose(snapshot(traces, traces), FOUR)
    beside = diagnose(replace(snapshot(traces, traces), progress=idle), FOUR)
    assert beside.suspects == alone.suspects and beside.kind is alone.kind
    everybody = [trace(rank, "barrier") for rank in range(4)]
    told = diagnose(replace(snapshot(everybody, everybody), progress=idle), FOUR)
    assert "dumps-older-than-stacks" not in codes(told.because)


def test_without_transfers_the_group_stays_whole() -> None:
    assert holds(stuck({rank: [] for rank in range(4)})) == [("dp", (0, 1, 2, 3), ())]


def test_the_ring_counts_where_a_recorder_tells_of_the_same_ranks() -> None:
    """The recorder alone shows that all have launched it, and would call the group stuck as a whole."""
    records = [untimed(rank) for rank in range(4)]
    verdict = judged(hung(2), *records)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.MACHINE, (2,), ("node-2",))
    assert [one.dim for one in verdict.groups] == ["dp"]
    alone = judged(hung(2))
    assert verdict.suspects[0].probability == alone.suspects[0].probability, "two witnesses of one thing are one"


def test_the_recorder_counts_where_fewer_ranks_have_a_ring() -> None:
    records = [untimed(rank) for rank in range(4)]
    believed = profiled.believed(records, profiled.count(hung(2)[:2], {}, FOUR))
    assert believed == records


def test_the_recorder_counts_where_a_communicator_that_is_under_way_cannot_be_counted() -> None:
    """One that is at rest, as what a program made and dropped, makes no difference."""
    records = [untimed(rank) for rank in range(4)]
    ended = [ring(0, replace(hung(2)[0].communicators[0], ended=True, in_flight=())), *hung(2)[1:]]
    assert profiled.believed(records, profiled.count(ended, {}, FOUR)) == records
    dropped = [replace(communicator(rank, 4, 3, number=0xDEF), ended=rank == 0) for rank in range(4)]
    rings = [ring(rank, hung(2)[rank].communicators[0], dropped[rank]) for rank in range(4)]
    believed = profiled.believed(records, profiled.count(rings, {}, FOUR))
    assert [one.source for one in believed] == [PROFILER] * 4


def test_groups_of_another_library_stay() -> None:
    gloo = CollectiveRecord("9", 3, "gloo:barrier", False)
    records = [
        replace(
            untimed(rank), enqueued={"0": 8, "9": 3}, completed={"0": 7, "9": 2}, entries=(*untimed(rank).entries, gloo)
        )
        for rank in range(4)
    ]
    believed = profiled.believed(records, profiled.count(hung(2), {}, FOUR))
    assert [sorted(one.enqueued) for one in believed] == [["0000000000000abc", "9"]] * 4


def test_ras_is_not_heard_of_a_communicator_that_the_rings_tell_of() -> None:
    flights = [[], [operation(7)], [operation(7)], [operation(7)]]
    rings = world(*flights, collectives=[7, 8, 8, 8])
    members = tuple(RasMember(rank, launched={"AllReduce": 3 if rank == 1 else 8}) for rank in range(4))
    report = RasReport((RasCommunicator("0000000000000abc", 4, members),))
    loads = snapshot(*[look({"1-3": "item", "0": "user"})] * 2)
    both = replace(loads, progress=rings, ras=(report, report))
    assert [hold.what for hold in investigate(both, FOUR).waits.holds] == [
        "all_reduce 7 of communicator 0000000000000abc"
    ]
    other = RasReport((replace(report.communicators[0], name="0000000000000def"),))
    assert len(investigate(replace(both, ras=(other, other)), FOUR).waits.holds) == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.tuples(PROGRESS, st.integers(1, 2), st.integers(0, 3)), max_size=3)),
        max_size=4,
        unique_by=lambda one: one[0],
    )
)
def test_whatever_rings_hold_is_judged(drawn: list[tuple[int, list[tuple[CollectiveProgress, int, int]]]]) -> None:
    """A ring belongs to a trainer's user, who may write into it what they like: that costs no verdict."""
    rings = [
        ring(rank, *(replace(one, communicator=number, rank=place, ranks=4) for one, number, place in found))
        for rank, found in drawn
    ]
    judged(rings)
    judged(rings, *(untimed(rank) for rank in range(4)))


def test_who_has_not_come_is_named_though_all_poll_in_one_function_of_their_own() -> None:
    """Where no frame tells, many at one place are taken to wait; counts know better of the one that is outside."""
    polls = snapshot(*[look({"0-3": "other"})] * 2)
    flights = [[operation(7)], [operation(7)], [], [operation(7)]]
    verdict = diagnose(replace(polls, progress=world(*flights, collectives=[8, 8, 7, 8])), FOUR)
    assert verdict.suspects[0].ranks == (2,) and verdict.culprit is not None and verdict.culprit.probability > 0.9
    few = [[], [], [], [operation(7)]]
    assert not diagnose(replace(polls, progress=world(*few, collectives=[7, 7, 7, 8])), FOUR).evict.machines
