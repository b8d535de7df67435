"""Different operations under one number of one group are the program's fault, and the odd rank is told from the others."""

import re
from dataclasses import replace

import pytest

from hangdog_models.collectives import FLIGHT_RECORDER, WATCHDOG, CollectiveRecord, RankCounters
from hangdog_models.diagnosis.hypotheses.disagreement import find, run_ahead
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Act, Kind, Verdict
from support.cases.reasons import codes
from support.cases.stories import first, job, look, snapshot

FOUR = job(dp=4, per_machine=1)


def records(odd: CollectiveRecord, usual: CollectiveRecord) -> tuple[RankCounters, ...]:
    return tuple(
        RankCounters(Rank(rank), {"0": 7}, {"0": 6}, (odd if rank == 2 else usual,), {}, {}) for rank in range(4)
    )


USUAL = CollectiveRecord("0", 7, "nccl:all_reduce", done=False, input_sizes=((8, 4),), dtypes=("Float",))


@pytest.mark.parametrize(
    "odd",
    [
        replace(USUAL, operation="nccl:all_gather"),
        replace(USUAL, dtypes=("Half",)),
        replace(USUAL, input_sizes=((8, 5),)),
    ],
)
def test_another_operation_type_or_size_is_software(odd: CollectiveRecord) -> None:
    told = records(odd, USUAL)
    assert [one.odd for one in find(told)] == [(2,)]
    story = snapshot(look({"0-3": "item"}), look({"0-3": "item"}))
    verdict = diagnose(replace(story, counters=told), FOUR)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.SOFTWARE, (2,), ())
    assert "rank 2 launched" in verdict.because[0].text


@pytest.mark.parametrize(
    "odd",
    [
        replace(USUAL, input_sizes=((4, 8),)),  # the same elements in another shape
        replace(USUAL, sequence=6, operation="nccl:broadcast"),  # done everywhere
        replace(USUAL, p2p=True, operation="nccl:send 0->1"),  # a numbering of its own
    ],
)
def test_what_need_not_be_equal_is_no_disagreement(odd: CollectiveRecord) -> None:
    assert find(records(odd, USUAL)) == ()


def test_sizes_may_differ_in_an_all_to_all() -> None:
    usual = replace(USUAL, operation="nccl:all_to_all")
    assert find(records(replace(usual, input_sizes=((9, 9),)), usual)) == ()


def test_two_equal_sides_name_both() -> None:
    told = records(replace(USUAL, dtypes=("Half",)), USUAL)[1:3]
    verdict = diagnose(replace(snapshot(), counters=told), FOUR)
    assert verdict.kind is Kind.SOFTWARE
    assert {suspect.ranks for suspect in verdict.suspects} == {(1,), (2,)}


def stages(*operations: str, looks: int = 2) -> Verdict:
    """Stages of a pipeline, each with a count of its own for their group, as until torch 2.7: batches of sends count."""
    members = {"pp": tuple(map(Rank, range(4)))}
    told = []
    for rank, operation in enumerate(operations):
        at = 100 + 50 * rank
        runs = replace(USUAL, group="pp", sequence=at, operation=f"nccl:{operation}", started=True)
        sent = replace(runs, operation=f"nccl:send {rank}->{rank + 1}", sequence=0, p2p=True, done=True)
        told.append(RankCounters(Rank(rank), {"pp": at}, {"pp": at - 1}, (sent, runs), members, {}, {"pp": at}))
    return diagnose(replace(snapshot(*[look({"0-3": "item"})] * looks), counters=tuple(told)), FOUR)


def test_a_group_whose_stages_count_apart_is_in_one_collective_at_a_time() -> None:
    verdict = stages("all_reduce", "_all_gather_base", "all_reduce", "all_reduce")
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.SOFTWARE, (1,), ())
    assert verdict.because[0].code == "operations-differ" and "group pp " in verdict.because[0].text
    assert re.search(r"rank 1 .*\b_all_gather_base\b.* 0,2-3 .*\ball_reduce\b", verdict.because[0].text)
    assert stages("all_reduce", "all_reduce", "all_reduce", "all_reduce").kind is not Kind.SOFTWARE
    once = stages("all_reduce", "_all_gather_base", "all_reduce", "all_reduce", looks=1)
    assert once.kind is not Kind.SOFTWARE, "dumps of two moments of a sound job differ like that"


def timed_out(rank: int, number: int, operation: str, completed: int, source: str = WATCHDOG) -> RankCounters:
    entry = CollectiveRecord("0", number, operation, done=False)
    return RankCounters(Rank(rank), {"0": number + 2}, {"0": completed}, (entry,), {}, {}, source=source)


def test_who_completed_operations_that_the_peer_cannot_have_begun_launched_others() -> None:
    """Rank 1 has completed 125, and rank 0 waits in 122: what rank 1 completed as 123 was no operation of both."""
    told = (timed_out(0, 122, "nccl:reduce_scatter", 121), timed_out(1, 126, "nccl:all_gather", 125))
    verdict = diagnose(replace(snapshot(look({})), counters=told), job(dp=2, per_machine=1))
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
    assert verdict.because[0].code == "operations-differ"
    assert re.search(r"rank 1 .*\b125\b.*\brank 0 .*\breduce_scatter 122\b", verdict.because[0].text)


@pytest.mark.parametrize(
    "told",
    [
        (timed_out(0, 122, "nccl:reduce_scatter", 121), timed_out(1, 123, "nccl:all_gather", 122)),
        (timed_out(0, 122, "nccl:broadcast", 121), timed_out(1, 126, "nccl:all_gather", 125)),
        (timed_out(0, 122, "nccl:reduce_scatter", 121), timed_out(1, 126, "nccl:all_gather", 125, FLIGHT_RECORDER)),
    ],
    ids=["one operation ahead", "one that its root ends early", "a recorder whose process may hang"],
)
def test_what_a_late_device_does_too_is_no_disagreement(told: tuple[RankCounters, ...]) -> None:
    assert not list(run_ahead(told))


def test_where_one_side_waits_for_its_device_that_may_hang_and_counters_are_asked_for() -> None:
    """It may be past the call in which the others are: a device and a transfer that hang hold ranks up so, too."""
    calls = look({"0-4,6-15": "gather", "5": "item"})
    found = diagnose(snapshot(calls, calls), job(dp=16, per_machine=8))
    assert not found.evict.machines and first(found) == (5,)
    assert {"waits-for-device", "collect-counters"} <= {*codes(found.because)}
    assert "nobody-outside" not in codes(found.because)
    assert found.next[0].do is Act.COLLECT
    plain = look({"0-4,6-15": "gather", "5": "barrier"})
    assert "device-may-hang" not in codes(diagnose(snapshot(plain, plain), job(dp=16, per_machine=8)).because)
