"""Two groups that ranks launch in different orders: each waits for what the other has put second."""

import re
from dataclasses import replace

from hangdog_models.collectives import CollectiveRecord, RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Kind, Verdict
from support.cases.reasons import codes
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
    assert verdict.because[0].code == "crossed-order"


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
    assert "waits-for-ever" not in codes(ring(ahead=True).because)


def run(mine: str, theirs: str) -> Verdict:
    """Ranks 0 to 3 share the groups x and y, all ranks w. What each launched, in order; what runs on its device in capitals.

    `mine` is of rank 0, `theirs` of ranks 1 to 3. The hosts of all wait for their devices.
    """
    members = {"w": tuple(map(Rank, range(8))), **dict.fromkeys("xy", tuple(map(Rank, range(4))))}

    def told(rank: int, launched: str) -> RankCounters:
        entries = tuple(replace(entry(letter.lower(), 3), started=letter.isupper()) for letter in launched)
        groups = "wxy" if rank < 4 else "w"
        enqueued = {group: 2 + (group in launched.lower()) for group in groups}
        started = {group: 2 + (group.upper() in launched) for group in groups}
        return RankCounters(Rank(rank), enqueued, dict.fromkeys(groups, 2), entries, members, {}, started)

    records = [told(rank, mine if rank == 0 else theirs if rank < 4 else "W") for rank in range(8)]
    story = snapshot(*[look({"0-7": "item"})] * 2)
    return diagnose(replace(story, counters=tuple(records)), EIGHT)


def test_who_launched_what_comes_behind_an_operation_left_it_out() -> None:
    verdict = run("W", "Xw")
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.SOFTWARE, (0,), ())
    assert verdict.because[0].code == "operation-left-out"
    assert re.search(r"rank 0 .* 3 .*\bgroup w .*\ball_reduce 3 .*\bgroup x\b", verdict.because[0].text)


def test_who_launched_it_after_the_later_one_has_another_order() -> None:
    verdict = run("Wx", "Xw")
    assert (verdict.kind, verdict.suspects[0].ranks) == (Kind.SOFTWARE, (0,))
    assert verdict.because[0].code == "crossed-order"
    assert re.search(r"rank 0 .* 3 .*\bgroup w .*\ball_reduce 3 .*\bgroup x\b", verdict.because[0].text)


def test_who_waits_elsewhere_for_those_who_wait_for_it_left_it_out() -> None:
    verdict = run("W", "Xy")
    assert (verdict.kind, verdict.suspects[0].ranks) == (Kind.SOFTWARE, (0,))
    assert verdict.because[0].code == "operation-left-out"
    assert re.search(r"rank 0 .*\bgroup x\b.*\branks 1-3\b.*\bgroup w\b.*\branks 1-3\b", verdict.because[0].text)


def test_who_launched_neither_is_merely_behind() -> None:
    assert run("", "Xw").kind is not Kind.SOFTWARE


def test_operations_of_several_threads_have_no_order() -> None:
    """What was launched behind the other one runs beside it, so it does not wait for that."""
    assert run("W", "XW").kind is not Kind.SOFTWARE
