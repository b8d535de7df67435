"""At the borders of what counts: a little more or less of it, and the verdict would be another one."""

import re
from dataclasses import replace

import msgspec
import pytest

from hangdog_models.collectives import CollectiveRecord, RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.options import Options
from hangdog_models.diagnosis.verdict.eviction import smallest
from hangdog_models.ranks import Rank
from hangdog_models.stack import ProcessTrace
from hangdog_models.verdict import Kind, Verdict
from support.cases.reasons import codes
from support.cases.stories import job, look, snapshot, trace, twice

EIGHT = job(dp=8, per_machine=1)


@pytest.mark.parametrize(
    ("reason", "first"), [("restarted under a new pid", Kind.SOFTWARE), ("capture tool missing", Kind.UNDETERMINED)]
)
def test_a_capture_that_failed_for_reasons_of_its_own_convicts_no_machine(reason: str, first: Kind) -> None:
    verdict = diagnose(twice([*look({"0-6": "gather"}), trace(7, reason)]), EIGHT)
    assert (verdict.kind, verdict.evict.machines) == (first, ())


def test_who_waits_for_files_and_who_waits_for_an_answer_seldom_waits_for_one_service() -> None:
    def asking(rank: int) -> ProcessTrace:
        one = trace(rank, "user", state="S")
        assert one.state
        return msgspec.structs.replace(one, state=msgspec.structs.replace(one.state, syscall="45 0xb"))  # recvfrom

    reading = [trace(rank, "user", state="D", wchan="nfs_wait_bit_killable") for rank in (0, 1)]
    verdict = diagnose(twice([*reading, asking(4), asking(5), *look({"2,3,6,7": "gather"})]), EIGHT)
    alike = diagnose(twice([*reading, *look({"2-7": "gather"})]), EIGHT)
    assert alike.kind is Kind.DEPENDENCY and verdict.kind is not Kind.MACHINE


def test_of_four_lost_dumps_something_is_said_and_of_five_nothing() -> None:
    def named(lost: int) -> bool:
        there = range(16 - lost)
        records = [
            RankCounters(Rank(rank), {"0": 7}, {"0": 6}, (), {"0": tuple(map(Rank, range(16)))}, {}, {"0": 7})
            for rank in there
        ]
        story = snapshot(*2 * [look({f"0-{15 - lost}": "metrics"})])
        verdict = diagnose(replace(story, counters=tuple(records)), job(dp=16, per_machine=1))
        return bool(verdict.suspects)

    assert [named(lost) for lost in (1, 4, 5)] == [True, True, False]


def test_one_rank_alone_in_a_collective_its_dumps_deny_does_not_make_them_old() -> None:
    counters = [RankCounters(Rank(rank), {"0": 7}, {"0": 7}, (), {}, {}) for rank in range(2)]
    story = twice(look({"0": "gather", "1": "disk"}))
    verdict = diagnose(replace(story, counters=tuple(counters)), job(dp=2, per_machine=1))
    assert "dumps-older-than-stacks" not in codes(verdict.because)


def test_two_of_a_hundred_and_twenty_eight_are_alone_at_their_barrier() -> None:
    wide = job(dp=128, per_machine=8)
    verdict = diagnose(twice(look({"0-124": "gather", "125-126": "barrier", "127": "disk"})), wide)
    assert (125, 126) in {suspect.ranks for suspect in verdict.suspects} or verdict.kind is Kind.MACHINE


def test_one_alone_in_a_group_of_eight_is_nothing_odd() -> None:
    verdict = diagnose(twice(look({"1-8,10-31": "gather", "9": "tensor", "0": "disk"})), job(tp=8, dp=4, per_machine=8))
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("node-0",))


def test_who_is_hardly_suspected_fills_up_no_eviction() -> None:
    likely = {frozenset({"node-0"}): 0.9, frozenset({"node-1"}): 0.07}
    assert not smallest(likely, Options()).machines
    assert smallest({**likely, frozenset({"node-1"}): 0.1}, Options()).machines == ("node-0", "node-1")


def exchange(given: int, taken: int) -> RankCounters:
    entries = tuple(
        CollectiveRecord("0", number, "nccl:all_to_all", number < 7, ((8, 4),), output_sizes=((8, 4),))
        for number in (5, 6)
    )
    last = CollectiveRecord("0", 7, "nccl:all_to_all", False, ((given, 4),), output_sizes=((taken, 4),))
    return RankCounters(Rank(0), {"0": 7}, {"0": 6}, (*entries, last), {"0": tuple(map(Rank, range(4)))}, {})


def exchanging(*sizes: tuple[int, int]) -> Verdict:
    records = tuple(replace(exchange(*size), rank=Rank(rank)) for rank, size in enumerate(sizes))
    return diagnose(replace(twice(look({"0-3": "item"})), counters=records), job(dp=4, per_machine=1))


def test_sizes_of_an_all_to_all_differ_by_nature_even_for_the_first_time() -> None:
    assert exchanging((8, 9), (9, 8), (7, 8), (8, 7)).kind is Kind.GROUP


def test_an_all_to_all_that_takes_more_than_is_given_is_software() -> None:
    verdict = exchanging((8, 9), (9, 8), (7, 8), (8, 8))
    assert verdict.kind is Kind.SOFTWARE and verdict.because[0].code == "splits-differ"
    assert re.search(r"\b128 .*\b132\b", verdict.because[0].text), "what they give, and what they take"
