"""Gathering: who is waited for and how long, what is refused, and that nobody who is absent is just dropped."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hangdog_models.collectives import INSPECTOR
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.library_counters import LibraryCounters, inspected_rank
from hangdog_models.snapshot import Job, Snapshot
from hangdog_models.stack import Missing, ProcessTrace, Reason
from hangdog_server.incidents.gather import (
    FLOW_S,
    Gathering,
    RoundAnswer,
    RoundPlan,
    Waiting,
    conclude,
    lose,
    placement,
    ready,
    rejoin,
    take,
)
from hangdog_server.protocol.rejections import RejectedCapture, Rejection
from support.servers.cast import trainer
from support.worded import names

A, B = (Rank(0), Rank(1)), (Rank(2), Rank(3))
PLAN = RoundPlan("order", Job("llama"), 1, 2.0, {"a": A, "b": B}, patience_s=20.0, rejoin_s=3.0)
TWICE = replace(PLAN, rounds=2)
FROM_A = RoundAnswer("a", 0, (trainer(0), trainer(1)))
FROM_B = RoundAnswer("b", 0, (trainer(2), trainer(3)))


def gathering(plan: RoundPlan, *answers: RoundAnswer) -> Gathering:
    """A gathering begun at 100 that took these answers in."""
    begun = Gathering(plan, 100.0)
    for answer in answers:
        assert take(begun, answer) == ""
    return begun


def done(begun: Gathering, now: float) -> Snapshot:
    snapshot = ready(begun, now)
    assert isinstance(snapshot, Snapshot), snapshot
    return snapshot


def until(begun: Gathering, now: float, answered: str) -> float:
    """Until when it waits, and that it says of how many machines there are answers."""
    state = ready(begun, now)
    assert isinstance(state, Waiting) and names(state.reason, answered)
    return state.until


def missing(snapshot: Snapshot, look: int = -1) -> dict[int, Missing]:
    return {trace.rank: trace.missing for trace in snapshot.rounds[look].traces if trace.missing}


def test_everybody_answered_is_ready_at_once() -> None:
    snapshot = done(gathering(PLAN, FROM_A, FROM_B), 100.0)
    assert [trace.rank for trace in snapshot.rounds[0].traces] == [0, 1, 2, 3]
    assert not missing(snapshot) and snapshot.account.files_read == 2


def test_waiting_says_for_whom_and_until_when() -> None:
    assert until(gathering(PLAN, FROM_A), 119.9, "1 of 2") == 120.0
    assert until(gathering(TWICE, FROM_A), 100.0, "0 of 2") == 122.0


def test_looks_of_a_large_cluster_that_still_come_in_are_waited_for_but_not_for_ever() -> None:
    machines = {f"m{at}": (Rank(at),) for at in range(11_000)}
    plan = replace(PLAN, asked=machines)
    assert plan.lasts_s == 20.0 and plan.backlog_s == 10.0 and PLAN.backlog_s == 0.0
    begun, coming = gathering(plan), iter(range(11_000))

    def waited(now: float, answers: bool = True) -> float | None:
        if answers:
            at = next(coming)
            assert take(begun, RoundAnswer(f"m{at}", 0, (trainer(at),))) == ""
        state = ready(begun, now)
        return state.until if isinstance(state, Waiting) else None

    assert waited(110.0) == 120.0
    assert waited(119.5) == 119.5 + FLOW_S
    assert waited(121.0, answers=False) == 119.5 + FLOW_S
    assert waited(121.0) == 121.0 + FLOW_S
    assert waited(129.0) == 130.0, "the backlog is as long as that"
    assert waited(129.5) == 130.0
    assert waited(130.0) is None
    begun = gathering(plan)
    assert waited(117.0) == 120.0 and waited(120.0, answers=False) is None, "nobody waits for those who do not come"


def test_ranks_of_a_silent_machine_are_missing_and_not_healthy() -> None:
    snapshot = done(gathering(PLAN, FROM_A), 120.0)
    gone = missing(snapshot)
    assert gone.keys() == {2, 3} and gone[2] == gone[3]
    assert gone[2].reason is Reason.NO_AGENT and names(gone[2].message, "b", "20 s")


def test_a_lost_agent_is_waited_for_only_as_long_as_it_takes_to_come_back() -> None:
    begun = gathering(PLAN, FROM_A)
    lose(begun, "b", 105.0)
    assert until(begun, 107.9, "1 of 2") == 108.0
    gone = missing(done(begun, 108.0))[2]
    assert gone.reason is Reason.NO_AGENT and names(gone.message, "b", "lost")


def test_a_lost_agent_that_is_back_is_asked_again_and_waited_for() -> None:
    begun = gathering(PLAN, FROM_A)
    lose(begun, "b", 105.0)
    assert rejoin(begun, "b")
    assert until(begun, 110.0, "1 of 2") == 120.0
    assert not rejoin(begun, "a"), "it has answered"
    assert not rejoin(begun, "stranger")


def test_losing_an_agent_that_has_answered_changes_nothing() -> None:
    begun = gathering(PLAN, FROM_A, FROM_B)
    lose(begun, "a", 101.0)
    assert not missing(done(begun, 102.0))


@pytest.mark.parametrize(
    ("answer", "reason", "named"),
    [
        (FROM_A, RejectedCapture.AGAIN, ("a", "look 0")),
        (RoundAnswer("c", 0), RejectedCapture.UNASKED, ("c",)),
        (RoundAnswer("a", 2), RejectedCapture.UNASKED, ("look 2",)),
        (RoundAnswer("b", 1), RejectedCapture.LATE, ("b",)),
    ],
)
def test_an_answer_nobody_waits_for_is_refused_with_a_reason(
    answer: RoundAnswer, reason: RejectedCapture, named: tuple[str, ...]
) -> None:
    begun = gathering(TWICE, FROM_A, structs.replace(FROM_B, last=True))
    before = conclude(begun)
    refused = take(begun, answer)
    assert isinstance(refused, Rejection) and refused.look is reason and names(refused, *named)
    assert conclude(begun) == before


def test_a_machine_that_is_gone_is_not_waited_for_but_its_ranks_are_missed() -> None:
    plan = replace(PLAN, asked={"a": A}, absent={"b": B})
    snapshot = done(gathering(plan, FROM_A), 100.0)
    gone = missing(snapshot)[3]
    assert gone.reason is Reason.NO_AGENT and names(gone.message, "b", "not connected")


def test_a_rank_its_machine_does_not_speak_of_is_missing() -> None:
    snapshot = done(gathering(PLAN, RoundAnswer("a", 0, (trainer(0),)), FROM_B), 100.0)
    gone = missing(snapshot)
    assert gone.keys() == {1} and gone[1].reason is Reason.NO_EVIDENCE
    assert names(gone[1].message, "of a", "not speak")


def test_an_unreadable_answer_is_an_answer_and_its_ranks_are_missing() -> None:
    snapshot = done(gathering(PLAN, FROM_A, RoundAnswer("b", 0, unreadable="frame 9 of 2")), 100.0)
    gone = missing(snapshot)[2]
    assert gone.reason is Reason.NO_EVIDENCE and names(gone.message, "b", "frame 9 of 2")
    assert snapshot.account.unreadable == {"b, look 0": "frame 9 of 2"} and snapshot.account.files_read == 1


def test_what_the_agent_itself_says_is_missing_stands() -> None:
    exited = ProcessTrace(Rank(1), missing=Missing(Reason.EXITED, "pid 7"))
    snapshot = done(gathering(PLAN, RoundAnswer("a", 0, (trainer(0), exited)), FROM_B), 100.0)
    assert missing(snapshot) == {1: Missing(Reason.EXITED, "pid 7")}


def test_a_machine_that_falls_silent_between_two_looks_timed_out_and_keeps_its_first_look() -> None:
    snapshot = done(gathering(TWICE, FROM_A, structs.replace(FROM_A, round=1), FROM_B), 122.0)
    assert not missing(snapshot, 0)
    gone = missing(snapshot, 1)[2]
    assert gone.reason is Reason.TIMED_OUT and names(gone.message, "b", "look 0", "20 s")


def test_a_look_nobody_answered_is_left_out_and_noted() -> None:
    snapshot = done(gathering(TWICE, FROM_A, FROM_B), 122.0)
    assert len(snapshot.rounds) == 1
    (note,) = snapshot.account.notes
    assert names(note, "no machine", "look 1")


def test_when_nobody_answers_there_is_one_look_in_which_everybody_is_missing() -> None:
    snapshot = done(gathering(TWICE), 122.0)
    assert len(snapshot.rounds) == 1 and set(missing(snapshot)) == {0, 1, 2, 3}


def test_a_new_pid_says_that_the_rank_was_restarted() -> None:
    again = RoundAnswer("a", 1, (trainer(0), trainer(1, pid=77)))
    snapshot = done(gathering(TWICE, FROM_A, again, FROM_B, structs.replace(FROM_B, round=1)), 100.0)
    gone = missing(snapshot)
    assert gone.keys() == {1} and gone[1].reason is Reason.RESTARTED
    assert names(gone[1].message, "pid 1001", "now 77")
    assert snapshot.rounds[1].traces[1].threads, "what was seen of the new process is kept"


def test_data_loaders_may_come_and_go() -> None:
    looks = [
        RoundAnswer("a", look, (trainer(0), trainer(1), structs.replace(trainer(0, pid=pid), role="dataloader-0")))
        for look, pid in enumerate((50, 60))
    ]
    assert not missing(done(gathering(TWICE, *looks, FROM_B, structs.replace(FROM_B, round=1)), 100.0))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_machines_that_claim_a_rank_the_same_one_is_believed_whoever_answers_first(
    order: tuple[int, int],
) -> None:
    answers = (RoundAnswer("a", 0, (trainer(0), trainer(1), trainer(2, "old"))), FROM_B)
    both = replace(PLAN, asked={"a": (*A, Rank(2)), "b": B})
    begun = gathering(both, *(answers[index] for index in order))
    snapshot = done(begun, 100.0)
    assert [trace.threads[0].frames[1].function for trace in snapshot.rounds[0].traces] == [
        "step",
        "step",
        "old",
        "step",
    ]
    (note,) = snapshot.account.notes
    assert names(note, "b and a", "rank 2", "a is believed")
    assert placement(begun) == {"a": (0, 1, 2), "b": (3,)}


def test_a_machine_takes_no_rank_that_another_one_announced() -> None:
    """Neither where that one captured it too, nor where it did not."""
    lies = RoundAnswer("a", 0, (trainer(0), trainer(1), trainer(2, "lies"), trainer(3, "lies")))
    begun = gathering(PLAN, lies, RoundAnswer("b", 0, (trainer(2),)))
    snapshot = done(begun, 100.0)
    assert placement(begun) == {"a": (0, 1), "b": (2, 3)}
    assert [bool(trace.missing) for trace in snapshot.rounds[0].traces] == [False, False, False, True]
    (note,) = snapshot.account.notes
    assert names(note, "a and b", "rank 2-3", "b is believed")


def test_of_two_that_announced_a_rank_the_first_has_it_whatever_they_answer_and_however_they_are_called() -> None:
    plan = replace(PLAN, asked={"b": B, "a": (Rank(0), Rank(1), Rank(2))})
    lies = RoundAnswer("a", 0, (trainer(0), trainer(1), trainer(2, "lies")))
    begun = gathering(plan, lies, RoundAnswer("b", 0, (trainer(3),)))
    assert placement(begun) == {"a": (0, 1), "b": (2, 3)}
    snapshot = done(begun, 100.0)
    assert set(missing(snapshot)) == {2}, "what the other one says of it is no evidence"
    (note,) = snapshot.account.notes
    assert names(note, "a and b", "rank 2", "b is believed")


def test_a_rank_that_the_job_does_not_have_is_not_taken_in() -> None:
    begun = gathering(replace(PLAN, world=4), FROM_A, RoundAnswer("b", 0, (*FROM_B.traces, trainer(900))))
    snapshot = done(begun, 100.0)
    assert [trace.rank for trace in snapshot.rounds[0].traces] == [0, 1, 2, 3]
    (note,) = snapshot.account.notes
    assert names(note, "b", "rank 900", "4 ranks")


def test_a_rank_nobody_announced_is_taken_in() -> None:
    begun = gathering(PLAN, FROM_A, RoundAnswer("b", 0, (*FROM_B.traces, trainer(9))))
    assert placement(begun)["b"] == (2, 3, 9)


@given(st.permutations([(m, k) for m in "ab" for k in range(2)]), st.integers(0, 4))
def test_the_snapshot_ignores_the_order_of_arrival_and_never_loses_a_rank(
    arrivals: list[tuple[str, int]], many: int
) -> None:
    ranks = {"a": A, "b": B}
    first, second = Gathering(TWICE, 0.0), Gathering(TWICE, 0.0)
    for begun, order in ((first, arrivals[:many]), (second, sorted(arrivals[:many]))):
        for machine, look in order:
            take(begun, RoundAnswer(machine, look, tuple(trainer(rank) for rank in ranks[machine])))
    assert conclude(first) == conclude(second)
    assert all([trace.rank for trace in round_.traces] == [0, 1, 2, 3] for round_ in conclude(first).rounds)


def test_findings_of_all_machines_are_in_the_snapshot() -> None:
    begun = Gathering(PLAN, 0.0)
    sick = Finding("NVML", "GPU lost", Impact.CONVICTS, "it is gone", "b")
    for machine in PLAN.asked:
        assert not take(begun, RoundAnswer(machine, 0, last=True, findings=(sick,) if machine == "b" else ()))
    assert conclude(begun).findings == (sick,)


def completed(**last: int) -> dict[str, LibraryCounters]:
    """By machine what NCCL Inspector wrote there: each rank's last operation of the whole job."""
    found: dict[str, LibraryCounters] = {}
    for machine, ranks in {"a": A, "b": B}.items():
        inspected = []
        for rank in ranks:
            header = f'{{"header":{{"id":"0x7f","rank":{rank},"n_ranks":4}},"coll_perf":{{"coll":"AllReduce","coll_sn":'
            inspected.append((rank, inspected_rank(f"{header}{last.get(f'r{rank}', 9)}}}}}".encode(), 2)))
        found[machine] = LibraryCounters(inspected=tuple(inspected))
    return found


@pytest.mark.parametrize(
    ("stood_s", "last", "named"),
    [
        (8.0, {"r3": 8}, {3: "b"}),
        (8.0, {}, {}),
        (8.0, {"r2": 8, "r3": 8}, {}),
        (1.0, {"r3": 8}, {}),  # its last dump may be from before
        (None, {"r3": 8}, {}),  # the job goes on
    ],
)
def test_a_rank_that_alone_lacks_an_operation_of_a_job_that_stands_still_is_named(
    stood_s: float | None, last: dict[str, int], named: dict[int, str]
) -> None:
    begun = Gathering(replace(PLAN, job=Job("llama", stalled_s=stood_s)), 0.0)
    for machine, counters in completed(**last).items():
        assert not take(begun, RoundAnswer(machine, 0, last=True, counters=counters))
    found = {one.rank: one.machine for one in conclude(begun).findings}
    assert found == named
    assert [one.source for one in conclude(begun).counters] == [INSPECTOR] * 4
