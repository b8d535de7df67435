"""Two groups that ranks launch in different orders: each waits for what the other has put second."""

from dataclasses import replace

from hangdog_models.collectives import CollectiveRecord, RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Kind, Verdict
from support.cases.stories import job, look, snapshot, twice

EIGHT = job(dp=8, per_machine=4)
PAIR = (Rank(0), Rank(1))


def entry(group: str, number: int) -> CollectiveRecord:
    return CollectiveRecord(group, number, "nccl:all_reduce", False, ((4,),), ("Float",))


def judged(*orders: str, late: int | None = None) -> Verdict:
    """Ranks 0 and 1 launch operations of the groups x and y; the others wait in the world's group for both."""
    members = {"x": PAIR, "y": PAIR, "w": tuple(map(Rank, range(8)))}
    told = []
    for rank, order in enumerate(orders):
        counts = dict.fromkeys(order, 3)
        done = dict.fromkeys("xy", 2)
        told.append(RankCounters(Rank(rank), done | counts, done, tuple(entry(g, 3) for g in order), members, {}))
    told += [RankCounters(Rank(rank), {"w": 3}, {"w": 2}, (entry("w", 3),), members, {}) for rank in range(2, 8)]
    return diagnose(replace(snapshot(), counters=tuple(told)), EIGHT)


def test_two_groups_entered_in_crossed_order_are_software() -> None:
    verdict = judged("xy", "yx")
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
    assert "the other way round" in verdict.because[0]


def test_where_each_has_entered_one_of_them_only_it_is_software_too() -> None:
    assert judged("x", "y").kind is Kind.SOFTWARE


def test_one_order_is_none_of_the_codes_doing() -> None:
    assert judged("xy", "xy").kind is not Kind.SOFTWARE


def test_where_one_has_entered_neither_the_order_tells_nothing() -> None:
    assert judged("xy", "").kind is not Kind.SOFTWARE


def ring(*, ahead: bool = False) -> Verdict:
    """Rank 0 is in an operation of x, which has four members, and the others in one of the world; `ahead`: so is rank 0."""
    members = {"w": tuple(map(Rank, range(8))), "x": tuple(map(Rank, range(4)))}
    mine = RankCounters(Rank(0), {"w": 3 if ahead else 2, "x": 3}, {"w": 2, "x": 2}, (entry("x", 3),), members, {})
    others = [
        RankCounters(
            Rank(rank),
            {"w": 3} | ({"x": 2} if rank < 4 else {}),
            {"w": 2} | ({"x": 2} if rank < 4 else {}),
            (entry("w", 3),),
            members,
            {},
        )
        for rank in range(1, 8)
    ]
    still = twice(look({"0-7": "item"}))
    return diagnose(replace(still, counters=(mine, *others)), EIGHT)


def test_one_that_waits_for_those_who_wait_for_it_took_another_way() -> None:
    verdict = ring()
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
    assert verdict.culprit is not None and verdict.culprit.ranks == (0,)


def test_who_has_launched_what_the_others_wait_in_is_merely_slow() -> None:
    assert "each side waits for the other for ever" not in ring(ahead=True).because
