"""Who is behind in process groups: as real NCCL dumps of active entries tell it, without states and without stacks."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hangdog_models.collectives import CollectiveRecord, RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.waits.collective_counters import count
from hangdog_models.ranks import Rank
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Kind, Verdict
from support.cases.stories import job, look, snapshot

Counts = Mapping[str, tuple[int, int]]
#: Tensor pairs, expert groups of four and data pairs in a job of eight, as (enqueued, completed) of each rank.
TENSOR = {f"t{first}": (Rank(first), Rank(first + 1)) for first in range(0, 8, 2)}
EXPERT = {f"e{first}": tuple(map(Rank, range(first, first + 4))) for first in (0, 4)}
MEMBERS: dict[str, tuple[Rank, ...]] = {**TENSOR, **EXPERT}


def world(ranks: int, per_machine: int | None = None) -> Topology:
    topology, _ = build(Layout(world_size=ranks, ranks_per_machine=per_machine), None)
    return topology


def nccl(
    rank: int, counts: Counts, *entries: CollectiveRecord, members: Mapping[str, tuple[Rank, ...]] = MEMBERS
) -> RankCounters:
    mine = {name: ranks for name, ranks in members.items() if rank in ranks}
    enqueued = {name: enqueued for name, (enqueued, _) in counts.items()}
    completed = {name: completed for name, (_, completed) in counts.items()}
    return RankCounters(Rank(rank), enqueued, completed, entries, mine, {})


def judged(records: Iterable[RankCounters], topology: Topology) -> Verdict:
    return diagnose(replace(snapshot(), counters=tuple(records)), topology)


def step(rank: int, tensor: tuple[int, int], expert: tuple[int, int]) -> RankCounters:
    return nccl(rank, {f"t{rank - rank % 2}": tensor, f"e{rank - rank % 4}": expert})


#: The first expert group goes on until it waits for the second one, of which rank 5 is behind.
WAITING = [step(rank, (90, 90), (40, 40)) for rank in range(4)]


def suspects(verdict: Verdict) -> list[tuple[int, ...]]:
    return [suspect.ranks for suspect in verdict.suspects if suspect.probability > 0.5]


def test_a_rank_that_has_not_completed_what_its_peers_have_is_named_whatever_it_launched() -> None:
    """Its host launched as much as all others; its device is behind in both of its groups."""
    told = [step(4, (85, 82), (38, 36)), step(5, (85, 78), (38, 31)), *(step(r, (85, 85), (38, 36)) for r in (6, 7))]
    verdict = judged([*WAITING, *told], world(8))
    assert (verdict.kind, suspects(verdict)) == (Kind.MACHINE, [(5,)])
    assert verdict.because[0].code == "operation-not-completed"
    assert verdict.because[0].text.startswith("rank 5 ") and "2 process groups" in verdict.because[0].text
    assert verdict.evict.machines == ()  # no evidence tells its machine


def test_two_at_once_in_two_groups_are_both_named() -> None:
    groups = [
        step(rank, (85, 82) if rank not in (1, 6) else (82, 82), (38, 36) if rank not in (1, 6) else (36, 36))
        for rank in range(8)
    ]
    verdict = judged(groups, world(8))
    assert (verdict.kind, suspects(verdict)) == (Kind.MACHINE, [(1,), (6,)])


def test_who_is_late_through_another_one_is_not_accused() -> None:
    """Rank 5 has come nowhere; rank 4 waits for it and is behind in the world's group for no other reason."""
    members = {**MEMBERS, "w": tuple(map(Rank, range(8)))}

    def one(rank: int, tensor: tuple[int, int], expert: tuple[int, int], wide: tuple[int, int]) -> RankCounters:
        return nccl(rank, {f"t{rank - rank % 2}": tensor, f"e{rank - rank % 4}": expert, "w": wide}, members=members)

    told = [one(rank, (90, 90), (40, 40), (7, 6)) for rank in range(4)]
    told += [one(5, (82, 82), (36, 36), (6, 6)), *(one(rank, (85, 82), (38, 36), (6, 6)) for rank in (4, 6, 7))]
    assert suspects(judged(told, world(8))) == [(5,)]


def test_a_culprit_with_operations_of_its_own_is_still_one() -> None:
    """Rank 5 waits for rank 7 in a group of the two, and rank 7 for rank 5 in three others: the one is late by itself."""
    members = {**MEMBERS, "a": (Rank(5), Rank(7)), "d": (Rank(5), Rank(7)), "x": (Rank(5), Rank(6), Rank(7))}
    told = [step(rank, (85, 82), (38, 36)) for rank in range(4)]
    told += [
        nccl(4, {"t4": (85, 82), "e4": (38, 36)}, members=members),
        nccl(5, {"t4": (82, 82), "e4": (36, 36), "a": (9, 8), "d": (4, 4), "x": (3, 3)}, members=members),
        nccl(6, {"t6": (85, 85), "e4": (38, 36), "x": (4, 3)}, members=members),
        nccl(7, {"t6": (85, 85), "e4": (38, 36), "a": (8, 8), "d": (5, 4), "x": (4, 3)}, members=members),
    ]
    holds = count(told, {}, world(8)).holds
    assert not any(5 in hold.inside for hold in holds)
    assert suspects(judged(told[4:], world(8))) == [(5,)]


def of_many(odd: tuple[int, int], others: tuple[int, int]) -> list[RankCounters]:
    members = {"0": tuple(map(Rank, range(128)))}
    return [nccl(rank, {"0": odd if rank == 77 else others}, members=members) for rank in range(128)]


def test_the_one_of_many_that_has_not_come_so_far_is_named() -> None:
    """127 ranks are in operation 7 of the world; one is still before 6, or in it."""
    for odd in ((5, 5), (6, 5)):
        verdict = judged(of_many(odd, (7, 6)), world(128, 8))
        assert (verdict.kind, suspects(verdict)) == (Kind.MACHINE, [(77,)])
        assert verdict.evict.machines == ()  # counters tell who is behind, not what holds it


def test_where_peers_have_completed_what_a_rank_never_launched_its_numbers_mean_something_else() -> None:
    """It left operations out, as code does: no all-reduce ends without everybody's part. That accuses no machine."""
    verdict = judged(of_many((122_697, 122_695), (136_330, 136_327)), world(128, 8))
    assert verdict.kind is not Kind.MACHINE and verdict.evict.machines == ()


def test_whose_device_waits_for_a_message_is_not_held_up_by_its_own() -> None:
    """Three of four have a receive under way, before what the fourth is in: whoever does not send to them is elsewhere."""
    members = {"t": tuple(map(Rank, range(4)))}
    receive = CollectiveRecord("p", 9, "nccl:coalesced", done=False, started=True)
    told = [nccl(rank, {"t": (5, 4)}, *([receive] if rank < 3 else []), members=members) for rank in range(4)]
    told = [replace(one, started={"t": 5 if one.rank == 3 else 4}) for one in told]
    topology = world(4, 4)
    assert suspects(judged(told, topology)) == []
    free = [replace(one, entries=()) for one in told]
    assert judged(free, topology).kind is Kind.MACHINE, "without it their devices have not come so far"


def test_one_operation_in_one_group_of_two_halves_is_what_dumps_of_two_moments_differ_by() -> None:
    told = [nccl(rank, {"e0": (7 if rank < 2 else 6, 6 if rank < 2 else 5)}) for rank in range(4)]
    assert suspects(judged(told, world(4))) == []


def test_a_broadcast_ends_where_it_comes_from_before_it_ends_elsewhere() -> None:
    sent = CollectiveRecord("e0", 6, "nccl:broadcast", done=False)
    told = [nccl(rank, {"e0": (6, 6) if rank == 0 else (6, 5)}, *((sent,) if rank else ())) for rank in range(4)]
    told[3] = nccl(3, {"e0": (6, 3)}, replace(sent, sequence=4))
    assert suspects(judged(told, world(4))) == []


def test_stages_count_their_messages_differently_and_are_not_late_for_that() -> None:
    """The status of a group in which messages pass counts them too: only what is on record counts there."""
    pipe: dict[str, tuple[Rank, ...]] = {"p": tuple(map(Rank, range(4)))}
    sent = CollectiveRecord("p", 12, "nccl:send 0->1", done=True, p2p=True)
    told = [nccl(0, {"p": (26, 26)}, sent, members=pipe)]
    told += [nccl(rank, {"p": (11980 + rank, 11976)}, members=pipe) for rank in range(1, 4)]
    assert count(told, {}, world(4)).holds == ()


def test_a_receive_waits_for_who_has_not_sent_though_no_start_is_known() -> None:
    pipe: dict[str, tuple[Rank, ...]] = {"p": (Rank(0), Rank(1))}
    first, second = (
        CollectiveRecord("p", number, f"nccl:{way}", done=False, p2p=True)
        for number, way in ((12, "recv 0<-1"), (13, "send 0->1"))
    )
    (hold,) = count([nccl(0, {}, first, second, members=pipe), nccl(1, {}, members=pipe)], {}, world(2)).holds
    assert (hold.inside, hold.awaited) == ((0,), (1,))


def test_pairs_that_hosts_launched_have_not_joined_while_most_of_the_world_is_awaited() -> None:
    """15 of 32 ranks are in a barrier; every pair has launched an operation, and nothing tells which of these have begun."""
    members: dict[str, tuple[Rank, ...]] = {f"p{rank}": (Rank(rank), Rank(rank + 16)) for rank in range(16)}
    members["0"] = tuple(map(Rank, range(32)))
    told = [
        nccl(rank, {"0": (3 if rank < 15 else 2, 2), f"p{rank % 16}": (9, 8)}, members=members) for rank in range(32)
    ]
    verdict = judged(told, world(32, 8))
    assert verdict.kind is Kind.UNDETERMINED and not verdict.evict.machines


def test_what_a_source_without_completions_launched_everywhere_shows_no_group() -> None:
    told = [RankCounters(Rank(rank), {"0": 7}, {}, (), {}, {}, source="NCCL log") for rank in range(4)]
    assert count(told, {}, job(dp=4)).holds == ()
    told[2] = replace(told[2], enqueued={"0": 6})
    (hold,) = count(told, {}, job(dp=4)).holds
    assert (hold.inside, hold.awaited) == ((0, 1, 3), (2,))


def test_who_is_behind_in_several_groups_is_more_surely_so() -> None:
    one, several = (
        judged(
            [
                nccl(
                    rank,
                    {f"e{at}": (5 if rank == 2 else 7, 5) for at in range(groups)},
                    members={f"e{at}": tuple(map(Rank, range(4))) for at in range(groups)},
                )
                for rank in range(4)
            ],
            world(4),
        )
        for groups in (1, 4)
    )
    assert suspects(several) == [(2,)] and several.confidence > 0.85 > one.confidence


def test_a_stack_that_waits_in_a_collective_is_no_device_that_is_behind() -> None:
    told = [step(5, (85, 78), (38, 31)), *(step(rank, (85, 82), (38, 36)) for rank in (4, 6, 7))]
    seen = snapshot(look({"4-7": "gather"}))
    verdict = diagnose(replace(seen, counters=tuple(told)), world(8))
    assert suspects(verdict) == []


def test_what_hosts_launched_has_not_joined_where_a_member_waits_before_it_for_somebody() -> None:
    """Rank 1 waits for rank 2, and launched an operation with rank 0 after that; both have launched it, none completes it."""
    members = {"a": (Rank(1), Rank(2)), "b": (Rank(0), Rank(1))}
    entries = [CollectiveRecord(group, 5, "nccl:all_reduce", done=False) for group in "ab"]

    def holds(*order: CollectiveRecord) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
        told = [nccl(0, {"b": (5, 4)}, members=members), nccl(2, {"a": (4, 4)}, members=members)]
        told.append(nccl(1, {"a": (5, 4), "b": (5, 4)}, *order, members=members))
        return {(hold.inside, hold.awaited) for hold in count(told, {}, world(3)).holds}

    assert holds(*entries) == {((1,), (2,)), ((0,), (1,))}
    assert holds(*reversed(entries)) == {((1,), (2,)), ((0, 1), ())}  # it was launched first, so it is under way
