"""A dump that is lost hides who is inside: whoever waits for that rank is named with it, and nobody is evicted for it."""

from dataclasses import replace

from hangdog_models.collectives import CollectiveRecord, RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.waits.collective_counters import count
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Act, Kind, Verdict
from hangdog_models.views.first_line import headline
from support.cases.reasons import codes, words_of
from support.cases.stories import first, job, look, snapshot, trace, twice

PIPELINE = job(pp=4, per_machine=1)
FOUR = tuple(map(Rank, range(4)))


def nccl(rank: int, *entries: CollectiveRecord, launched: int = 7, begun: int = 7, done: int = 6) -> RankCounters:
    return RankCounters(Rank(rank), {"0": launched}, {"0": done}, entries, {"pp": FOUR}, {}, {"0": begun})


def idle(rank: int, *entries: CollectiveRecord) -> RankCounters:
    """No collective is under way."""
    return nccl(rank, *entries, launched=6, begun=6)


def message(way: str, *, begun: bool = True) -> CollectiveRecord:
    return CollectiveRecord("pp", 3, f"nccl:{way}", done=False, p2p=True, started=begun)


def batch(*ways: str, begun: bool = True, number: int = 3) -> tuple[CollectiveRecord, ...]:
    inside = [CollectiveRecord("pp", number, f"nccl:{way}", done=False, p2p=True) for way in ways]
    return (*inside, CollectiveRecord("pp", number, "nccl:coalesced", done=False, p2p=True, started=begun))


def judged(story: Snapshot, records: list[RankCounters], topology: Topology) -> Verdict:
    return diagnose(replace(story, counters=tuple(records)), topology)


def test_the_one_rank_that_left_nothing_is_named_with_those_who_wait_for_it() -> None:
    wide = job(dp=16, per_machine=1)
    verdict = judged(snapshot(*2 * [look({"0-14": "metrics"})]), [nccl(rank) for rank in range(15)], wide)
    assert (verdict.kind, verdict.evict.machines) == (Kind.GROUP, ())
    assert verdict.suspects[0].ranks == tuple(range(16))
    assert verdict.because[0].code == "no-dump" and "rank 15" in verdict.because[0].text
    assert verdict.culprit is not None and verdict.culprit.ranks == (15,), "the others are known to wait for it"
    assert verdict.next[0].do is Act.COLLECT and "dump of rank 15" in verdict.next[0].why
    assert "collect-awaited-ranks" in codes(verdict.because)


def test_machines_of_which_nothing_came_are_looked_at_first() -> None:
    """All that were seen wait in the end of a step, and their stacks name nobody: an open question that begins there."""
    wide = job(dp=16, per_machine=4)
    verdict = diagnose(twice(look({"0-3,8-11": "item"})), wide)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert verdict.culprit is not None and verdict.culprit.machines == ("node-1",)
    assert 0.2 < verdict.culprit.probability < 0.35
    assert "node-1 and node-3" in words_of(verdict.because, "machine-left-nothing")
    assert verdict.next[0].do is Act.COLLECT and "4-7,12-15" in verdict.next[0].why
    busy = diagnose(twice(look({"0-3,8-10": "item", "11": "loader"})), wide)
    assert busy.culprit is not None and busy.culprit.ranks == (11,), "somebody was seen outside"


def test_a_rank_that_left_neither_stack_nor_dump_is_no_member_that_joined() -> None:
    """Its machine was read, so its process has ended, if not two files were lost. A refused capture shows no such thing."""
    wide = job(dp=16, per_machine=4)
    records = [nccl(rank) for rank in range(15)]
    ended = judged(snapshot(*2 * [look({"0-14": "metrics"})]), records, wide)
    assert ended.culprit is not None and ended.culprit.ranks == (15,)
    assert (ended.kind, ended.evict.machines) == (Kind.UNDETERMINED, ())
    refused = judged(snapshot(*2 * [look({"0-14": "metrics", "15": "not permitted"})]), records, wide)
    assert refused.kind is Kind.GROUP


def test_who_left_neither_a_dump_nor_a_stack_and_is_awaited_is_looked_at_first() -> None:
    """Gloo's recorder does not tell what has begun, and stacks tell who waits: either way it is the first to look at."""
    counted = [RankCounters(Rank(r), {"0": 7}, {"0": 6}, (), {}, {}) for r in (0, 1, 3)]
    by_dumps = judged(snapshot(), counted, job(dp=4, per_machine=1))
    by_stacks = judged(snapshot(look({"0-1,3": "metrics"})), [], job(dp=4, per_machine=1))
    for verdict, nothing in ((by_dumps, "no-dump"), (by_stacks, "no-stack")):
        assert (first(verdict), verdict.evict.machines) == ((2,), ())
        assert verdict.because[0].code == nothing and "rank 2 left " in verdict.because[0].text
        assert verdict.next[0].do is Act.COLLECT and "dump of rank 2" in verdict.next[0].why
        assert "rank 2" in words_of(verdict.because, "collect-awaited-ranks")


def gloo(rank: int, group: tuple[Rank, ...], name: str = "0") -> RankCounters:
    """It has launched a collective that does not complete; gloo's recorder does not tell what has begun."""
    return RankCounters(Rank(rank), {name: 7}, {name: 6}, (), {name: group}, {})


def named(verdict: Verdict) -> tuple[tuple[int, ...], float]:
    return (verdict.culprit.ranks, verdict.culprit.probability) if verdict.culprit else ((), 0.0)


def test_where_all_others_wait_for_the_one_that_left_nothing_it_is_the_culprit_that_is_not_seen() -> None:
    told = [gloo(rank, FOUR) for rank in (0, 1, 3)]
    by_dumps = judged(snapshot(), told, job(dp=4, per_machine=1))
    by_stacks = diagnose(twice([*look({"0-2": "gather"}), trace(3, "capture tool missing")]), job(dp=4, per_machine=1))
    for verdict, who in ((by_dumps, 2), (by_stacks, 3)):
        ranks, probability = named(verdict)
        assert ranks == (who,) and probability > 0.7
        assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ()), "nothing tells why"
        assert verdict.culprit is not None and verdict.culprit.machines == (f"node-{who}",)
        assert f"rank {who} on node-{who} " in headline(verdict)
        assert "nothing tells why" in headline(verdict)


def test_of_several_that_left_nothing_each_has_its_part_and_those_of_one_machine_theirs_together() -> None:
    wide = tuple(map(Rank, range(16)))
    apart = judged(snapshot(), [gloo(rank, wide) for rank in range(14)], job(dp=16, per_machine=1))
    assert 0.2 < named(apart)[1] < 0.5 and len(named(apart)[0]) == 1 and not apart.evict.machines
    together = judged(snapshot(), [gloo(rank, wide) for rank in range(14)], job(dp=16, per_machine=2))
    assert named(together)[0] == (14, 15) and named(together)[1] > 0.7


def test_who_left_nothing_and_is_awaited_by_nobody_is_not_named() -> None:
    """Ranks 0 and 1 wait for rank 2. Rank 3 left nothing either, is in another group, and rank 2 may wait for it."""
    groups = {"a": (Rank(0), Rank(1), Rank(2)), "b": (Rank(2), Rank(3))}
    told = [replace(gloo(rank, groups["a"], "a"), members=groups) for rank in range(2)]
    others = [gloo(rank, tuple(map(Rank, range(4, 8))), "c") for rank in range(4, 7)]
    verdict = judged(snapshot(), [*told, *others], job(dp=8, per_machine=1))
    assert all(3 not in suspect.ranks or suspect.probability < 0.2 for suspect in verdict.suspects)
    assert 3 not in named(verdict)[0] and named(verdict)[1] < 0.5


def test_beside_one_that_waits_for_nobody_or_tells_not_for_whom_who_left_nothing_may_be_innocent() -> None:
    eight = job(dp=8, per_machine=1)
    at_work = diagnose(twice(look({"0-5": "gather", "6": "user"})), eight)
    assert named(at_work)[0] == (6,)
    elsewhere = diagnose(twice(look({"0-3": "gather", "4-6": "item"})), eight)
    assert 7 not in named(elsewhere)[0] or named(elsewhere)[1] < 0.5


def test_of_a_pipeline_the_neighbours_of_the_lost_dump_are_named_and_no_other_stage() -> None:
    story = snapshot(*2 * [look({"0-3": "stage"})])
    told = [idle(0, message("send 0->1")), idle(2, message("recv 2<-1")), idle(3, message("recv 3<-2"))]
    verdict = judged(story, told, PIPELINE)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.GROUP, (0, 1, 2), ())


def test_ranks_that_wait_for_each_other_wait_for_no_lost_dump() -> None:
    """Ranks 2 and 3 each receive from the other, and neither sends: code did that, wherever rank 1 is."""
    told = [idle(0, message("send 0->1")), idle(2, message("recv 2<-3")), idle(3, message("recv 3<-2"))]
    verdict = judged(snapshot(*2 * [look({"0-3": "stage"})]), told, PIPELINE)
    assert "no-dump" not in codes(verdict.because)
    assert verdict.kind is not Kind.GROUP


def test_gloo_tells_no_beginnings_so_a_lost_dump_shows_no_group() -> None:
    wide = job(dp=16, per_machine=1)
    told = [replace(nccl(rank), started={}) for rank in range(15)]
    assert judged(snapshot(*2 * [look({"0-14": "metrics"})]), told, wide).kind is not Kind.GROUP


def test_a_lost_dump_is_assumed_in_no_operation_after_a_message_that_another_one_waits_for() -> None:
    """Rank 4 waits for a message of rank 0 and is late for its own all-reduce: so is rank 0, whose dump is lost, for its."""
    eight = job(dp=4, pp=2, per_machine=1)
    groups: dict[str, tuple[Rank, ...]] = {"low": FOUR, "high": tuple(map(Rank, range(4, 8))), "pp": (Rank(0), Rank(4))}
    members = [replace(nccl(rank), enqueued={"low": 7}, completed={"low": 6}, started={"low": 7}) for rank in (1, 2, 3)]
    members += [
        replace(nccl(rank), enqueued={"high": 7}, completed={"high": 6}, started={"high": 7}) for rank in (5, 6, 7)
    ]
    last = replace(nccl(4, message("recv 1<-0")), enqueued={"high": 6}, completed={"high": 6}, started={"high": 6})
    told = [replace(one, members=groups) for one in (*members, last)]
    story = snapshot(*2 * [look({"0-7": "item"})])
    verdict = judged(story, told, eight)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.GROUP, (0, 4), ())
    verdict = judged(story, [one for one in told if one.rank != 4], eight)  # of the message nobody tells
    assert verdict.suspects[0].ranks != (0, 4)


def test_who_left_nothing_is_no_rival_of_a_group_that_was_seen_whole_without_it() -> None:
    """One look: two pairs have joined and stay, rank 1 is in both; rank 3 was not captured and is in neither."""
    wide = job(dp=64, per_machine=1)
    groups: dict[str, tuple[Rank, ...]] = {"a": (Rank(0), Rank(1)), "b": (Rank(1), Rank(2))}
    told = [nccl(rank) for rank in range(64) if rank != 3]
    for rank, names in ((0, "a"), (1, "ab"), (2, "b")):
        pending, before = dict.fromkeys(names, 4) | {"0": 6}, dict.fromkeys(names, 3) | {"0": 6}
        told[rank] = replace(told[rank], enqueued=pending, started=pending, completed=before, members=groups)
    verdict = judged(snapshot(look({"0-2,4-63": "item"})), told, wide)
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("node-1",))


def test_groups_that_are_stuck_inside_of_one_machine_have_that_in_common() -> None:
    two = job(dp=8, per_machine=4)
    groups: dict[str, tuple[Rank, ...]] = {"a": (Rank(0), Rank(1)), "b": (Rank(2), Rank(3))}
    told = []
    for rank in range(8):
        pending = {("a", "b")[rank // 2]: 4} if rank < 4 else {}
        told.append(
            replace(nccl(rank), enqueued=pending, started=pending, completed=dict.fromkeys(pending, 3), members=groups)
        )
    verdict = judged(snapshot(*2 * [look({"0-7": "item"})]), told, two)
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("node-0",))


def test_a_switch_takes_a_second_look_before_its_machines_are_evicted() -> None:
    leaves = {f"leaf-{at}": tuple(f"node-{machine}" for machine in range(4 * at, 4 * at + 4)) for at in range(4)}
    shape, _ = build(Layout(sizes={"dp": 64}, ranks_per_machine=4, switches=leaves), None)
    groups: dict[str, tuple[Rank, ...]] = {f"{rank}": (Rank(rank), Rank(rank + 16)) for rank in range(0, 16, 4)}
    told = []
    for rank in range(64):
        mine = {name: 4 for name, members in groups.items() if rank in members}
        pending, done = (mine, dict.fromkeys(mine, 3)) if mine else ({"0": 7}, {"0": 6})
        told.append(replace(nccl(rank), enqueued=pending, started=pending, completed=done, members=groups))
    for rank in (0, 4, 8, 12, 16, 20, 24, 28):
        told[rank] = replace(
            told[rank], enqueued={"0": 6} | told[rank].enqueued, completed={"0": 6} | told[rank].completed
        )
    seen = look({"0-63": "item"})
    once, again = judged(snapshot(seen), told, shape), judged(snapshot(seen, seen), told, shape)
    assert (once.kind, once.evict.machines, len(again.evict.machines)) == (Kind.GROUP, (), 8)
    assert "collect-looks" in codes(once.because)


def holds(*records: RankCounters) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(hold.inside, hold.awaited) for hold in count(records, {}, PIPELINE).holds if hold.dim == "p2p"]


def test_a_message_that_joined_is_stuck_whatever_else_its_ends_wait_for() -> None:
    """Rank 1 also waits for rank 0: a send and a receive outside of a batch run side by side."""
    one = nccl(1, message("recv 1<-0"), message("send 1->2"))
    assert holds(nccl(0), one, nccl(2, message("recv 2<-1"))) == [((1,), (0,)), ((1, 2), ())]


def test_a_ring_whose_third_tells_that_it_has_not_come_is_stuck_nowhere() -> None:
    """Rank 0 receives what rank 2 has posted, in another turn: rank 2 waits for rank 1, which is in no batch."""
    ahead, behind = batch("recv 0<-2"), batch("send 2->0", "recv 2<-1")
    assert sorted(holds(idle(0, *ahead), idle(1), idle(2, *behind))) == [((0,), (2,)), ((2,), (1,))]
    assert ((0, 2), ()) in holds(idle(0, *ahead), idle(2, *behind))  # of rank 1 nothing is known


def test_a_group_that_lost_counters_complete_is_named_and_not_evicted() -> None:
    """Rank 3 of four has left no dump: it may be inside like the others, or wait elsewhere for what the code did."""
    shape = job(tp=4, dp=2, per_machine=4)
    members = {"tp": FOUR}
    pending = [
        replace(nccl(rank), enqueued={"tp": 7}, started={"tp": 7}, completed={"tp": 6}, members=members)
        for rank in range(4)
    ]
    others = [nccl(rank, launched=6, begun=6) for rank in range(4, 8)]
    story = snapshot(*2 * [look({"0-7": "item"})])
    assert judged(story, [*pending, *others], shape).evict.machines == ("node-0",)
    verdict = judged(story, [*pending[:3], *others], shape)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.GROUP, FOUR, ())


def test_a_ring_in_which_one_has_not_come_is_stuck_nowhere_else_where_a_message_is() -> None:
    """Rank 1 may be a turn behind rank 0, for its batch waits for rank 2; ranks 3 and 0 have joined."""
    behind = idle(1, *batch("send 1->0", "recv 1<-2"))
    ring = [idle(0, *batch("recv 0<-1"), message("send 0->3")), behind]
    assert holds(*ring, idle(3, message("recv 3<-0"))) == [((1,), (2,)), ((0,), (1,)), ((0, 3), ())]
    assert ((0, 1), ()) in holds(idle(0, *batch("recv 0<-1")), behind)  # nothing else explains it
    pair = [replace(nccl(rank), members={"0": (Rank(2), Rank(3))}) for rank in (2, 3)]
    assert ((0, 1), ()) not in holds(idle(0, *batch("recv 0<-1")), behind, *pair)  # a collective does
