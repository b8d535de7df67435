"""Reports in logs that name others than their writer: Horovod, XLA, JAX and the analysis of flight recorder dumps."""

import re

import pytest

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.reading.logs import training_log
from hangdog_models.reading.logs.training_log import Stream

STALLED = (
    "[2026-01-02 03:04:05.6: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered "
    "or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. \n"
)
STUCK = (
    "E0102 03:04:05.6 7 collective_ops_utils.h:310] {words}: participant AllReduceParticipantData{{rank={rank}, element_count=8, "
    "type=F32, rendezvous_key=RendezvousKey{{run_id=RunId: {run}, global_devices=[0,1,2,3], num_local_participants={local}, "
    "collective_op_kind=cross_replica, op_id={op}}}}} waiting for all participants to arrive\n"
)
NOT_ALL = (
    "Not all ranks joining collective, sequence number: 44\ninternal record id: 90\ngroup info: 0:default_pg\n"
    "collective: nccl:all_reduce\nmissing ranks: {2}\ninput sizes: [[8]]\noutput sizes: [[8]]\nworld size: 4\n"
    "expected ranks: {0, 1, 2, 3}\ncollective state: scheduled\n"
)
TABLE = (
    "  id  group_id    pass_check  collective_seq_id  collective_name    collective_state  missing_ranks\n"
    "   0  main        True        43                 nccl:all_reduce    scheduled\n"
    "   1  main        True        44                 nccl:all_reduce    scheduled         {2}\n"
    "--- NCCL Calls ---\n"
    "  id  collective_id  group_id   global_rank  collective_type\n"
    "   0              0  main                 0  nccl:all_reduce\n"
    "   1              0  main                 2  nccl:all_reduce\n"
    "   2                 main                 3  nccl:all_reduce\n"
)


def findings(text: str, rank: int | None = None) -> list[Finding]:
    streams: tuple[Stream, ...] = training_log.read(text, None if rank is None else Rank(rank))
    return [finding for stream in streams for finding in stream.findings]


def stuck(rank: int, *, op: int = 0, run: int = 0, local: int = 4, words: str = "") -> str:
    words = words or "This thread has been waiting for 5000ms for and may be stuck"
    return STUCK.format(rank=rank, op=op, run=run, local=local, words=words)


def missing(rank: str, names: str) -> str:
    return f"{rank}: [{names}]\n"


@pytest.mark.parametrize("prefix", ["", "[0]<stderr>:", "[1,0]<stderr>:", "[rank0]:"])
def test_the_rank_that_all_tensors_lack_is_named(prefix: str) -> None:
    text = STALLED + "Missing ranks:\n" + missing("1", "allreduce.a, allreduce.b") + missing("2!", "allreduce.a")
    (one,) = findings("".join(f"{prefix}{line}\n" for line in text.splitlines()))
    assert (one.code, one.impact, one.ranks) == ("stall inspector", Impact.VICTIM, (1,))
    assert one.rank == (0 if prefix else None)
    assert re.search(r"\bwait .*\ballreduce\.a, .*\brank 1 .*not submit", one.what)


def test_sides_that_lack_what_the_other_one_waits_in_are_in_different_operations() -> None:
    (one,) = findings(STALLED + "Missing ranks:\n" + missing("0", "broadcast.b") + missing("1", "allreduce.a"))
    assert (one.code, one.impact, one.ranks) == ("mismatched collectives", Impact.PROGRAM, (0, 1))
    assert re.search(r"\brank 0 .*\bbroadcast\.b, rank 1 .*\ballreduce\.a\b", one.what)


def test_a_list_that_is_cut_may_hold_what_the_other_one_holds() -> None:
    lists = "Missing ranks:\n" + missing("0", "c") + missing("1", "a, b ...")
    (one,) = findings(STALLED + lists)
    assert (one.impact, one.ranks) == (Impact.VICTIM, (1,)), "rank 1 may lack c as well"
    (one,) = findings(STALLED + "Missing ranks:\n" + missing("0", "c") + STALLED + lists)
    assert (one.impact, one.ranks) == (Impact.PROGRAM, (0, 1)), "rank 1 had submitted c a minute ago"


def test_only_the_last_report_counts() -> None:
    text = STALLED + "Missing ranks:\n" + missing("3", "a") + STALLED + "Missing ranks:\n" + missing("1", "b")
    assert [one.ranks for one in findings(text)] == [(1,)]


@pytest.mark.parametrize(
    ("ops", "impact", "ranks"),
    [
        (
            "Stalled ops:x_0 [missing ranks: 1, 3]\n[2026: W operations.cc:588] y_0 [missing ranks: 1, 3]\n",
            Impact.VICTIM,
            (1, 3),
        ),
        ("Stalled ops:x_0 [missing ranks: 1]\ny_0 [missing ranks: 3]\n", Impact.PROGRAM, (1, 3)),
        ("Stalled ops: x_0 [ready ranks: 5, 6], y_0 [ready ranks: 5, 6]\n", Impact.VICTIM, ()),
    ],
)
def test_the_older_forms_list_tensors(ops: str, impact: Impact, ranks: tuple[int, ...]) -> None:
    (one,) = findings(STALLED + ops)
    assert (one.impact, one.ranks) == (impact, ranks)


def test_lines_of_others_may_stand_between() -> None:
    text = (
        f"[0]<stderr>:{STALLED}[1]<stdout>:step 4\n[0]<stderr>:Missing ranks:\n[1]<stdout>:step 5\n[0]<stderr>:3: [a]\n"
    )
    assert [one.ranks for one in findings(text)] == [(3,)]


def test_a_device_that_does_not_come_to_a_rendezvous_is_named() -> None:
    found = findings(stuck(0) + stuck(1) + stuck(3))
    assert [(one.rank, one.impact, one.ranks) for one in found] == [(r, Impact.VICTIM, (2,)) for r in (0, 1, 3)]


def test_devices_of_one_of_several_processes_are_no_ranks() -> None:
    assert [one.ranks for one in findings(stuck(0, local=2))] == [()]
    assert [(one.rank, one.ranks) for one in findings(stuck(0), rank=5)] == [(5, ())]


def test_who_was_let_go_waits_no_longer() -> None:
    freed = stuck(0, words="Thread is unstuck!  Warning above was a false-positive.  Perhaps the timeout is too short")
    assert findings(stuck(0) + freed) == []


def test_devices_at_different_operations_of_one_run_wait_for_each_other() -> None:
    (one,) = findings(stuck(0, op=1) + stuck(1, op=2))
    assert (one.code, one.impact) == ("mismatched collectives", Impact.PROGRAM)
    assert {one.impact for one in findings(stuck(0, run=1) + stuck(1, run=2))} == {Impact.VICTIM}


@pytest.mark.parametrize(("text", "group"), [(NOT_ALL, "0:default_pg"), (TABLE, "main"), (f"[rank0]: {NOT_ALL}", "")])
def test_the_analysis_of_recorder_dumps_names_who_is_missing(text: str, group: str) -> None:
    text = text.replace("\n", "\n[rank0]: ") if not group else text
    streams = training_log.read(text, None)
    (one,) = [finding for stream in streams for finding in stream.findings]
    assert (one.code, one.impact, one.ranks) == ("flight recorder analysis", Impact.VICTIM, (2,))
    assert re.search(r"\brank 2 .*missing .*\ball_reduce 44\b", one.what)
    counted = {stream.rank: stream.counters.enqueued for stream in streams if stream.counters is not None}
    positions = {int(rank or 0): next(iter(groups.values())) for rank, groups in counted.items()}
    members = {0, 3} if group == "main" else {0, 1, 3}
    assert positions == dict.fromkeys(members, 44) | {2: 43}


def test_the_older_forms_of_the_analysis() -> None:
    (one,) = findings(
        "Not all ranks joining collective 5 at entry 4\ngroup info: 0:d\nmissing ranks: {1}\nexpected ranks: 2\n"
    )
    assert one.ranks == (1,)
    (one,) = findings("Not all ranks joining collective for group 0:d collective nccl:x Missing ranks are {1, 3}\n")
    assert one.ranks == (1, 3)


@pytest.mark.parametrize(("kind", "count"), [("COLLECTIVE_TYPE", 1), ("SIZE_OR_SYNTAX", 1), ("COLLECTIVE_STATE", 0)])
def test_a_mismatch_is_code_but_not_one_of_states(kind: str, count: int) -> None:
    text = f"torch.distributed\nCollective sequence number: 7 has errors\nerror msg: Culprit rank 1; Error type: {kind}_MISMATCH\n"
    assert [(one.impact, one.ranks) for one in findings(text)] == [(Impact.PROGRAM, ())] * count


def test_tasks_that_miss_a_barrier_of_jax_are_named() -> None:
    names = "".join(f"/job:jax_worker/replica:0/task:{number}\n" for number in (6, 0))
    head = "x.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: a\n"
    late = [one for one in findings(f"{head}Timed out task names:\n{names}\n\nRPC: x\n") if one.ranks]
    assert [(one.code, one.ranks) for one in late] == [("JAX coordination", (0, 6))]
    more = f"{head}# of tasks that reached the barrier: 8/16.\nThe first task: a. Some timed out task names:\n{names}"
    assert [one.ranks for one in findings(more)] == [(), ()], "six more are missing than are listed"


def test_a_task_without_heartbeat_is_lost() -> None:
    line = (
        "coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout. This indicates\n"
    )
    assert [(one.impact, one.ranks) for one in findings(line)] == [(Impact.VICTIM, (37,))]


def test_a_hostile_report_stays_small() -> None:
    many = STALLED + "Missing ranks:\n" + "".join(missing(str(k), "a, b ...") for k in range(40_000))
    assert len(findings(many)) == 1
    assert len(findings("".join(stuck(0, run=k) for k in range(1_000)))) == 1
    assert len(findings("".join(NOT_ALL.replace("default_pg", str(k)) for k in range(200)))) == 16


def slots(rank: int, *values: int) -> str:
    return "".join(
        f"DeepEP timeout check failed: rank = {rank}, thread = {peer}, value = {value})\n"
        for peer, value in enumerate(values)
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (slots(0, 0, 0, 1024, 0) + slots(3, 0, 0, 1024, 0), "ranks 0,3 waited in vain in a barrier of DeepEP for rank 2: look"),
        (slots(0, 0, 7, 7) + slots(1, 0, 0, 7), "ranks 0-1 waited in vain in a barrier of DeepEP for rank 2: look"),
        (slots(0, 0, 7) + slots(1, 7, 0), "ranks 0-1 waited in vain in a barrier of DeepEP (numbers"),
        (slots(1, 0, 0), "rank 1 waited in vain in a barrier of DeepEP (numbers"),
    ],
)  # fmt: skip
def test_a_barrier_of_deepep_tells_who_did_not_come_to_it(text: str, words: str) -> None:
    assert training_log.recognises(text)
    (one,) = findings(text)
    assert (one.code, one.impact, one.ranks, one.rank) == ("DeepEP time-out", Impact.VICTIM, (), None)
    assert words in one.what


def test_the_form_with_a_colon_before_the_number_is_read() -> None:
    """As in https://github.com/pytorch/pytorch, tools/flight_recorder: the lines of one collective."""
    text = (
        "Not all ranks joining collective: sequence number: 31117\ninternal record id: 31116\ngroup info: 0:default_pg\n"
        "collective: nccl:all_reduce\nmissing ranks: {3, 4}\nworld size: 8\nexpected ranks: {0, 1, 2, 3, 4, 5, 6, 7}\n"
    )
    (one,) = findings(text)
    assert one.ranks == (3, 4) and "all_reduce 31117" in one.what


def test_devices_that_wait_by_their_ordinals_name_the_one_that_did_not_come() -> None:
    """https://github.com/jax-ml/jax/issues/6896: the form before 2022."""
    line = (
        "2021-06-01 12:09:19.912475: E external/org_tensorflow/tensorflow/compiler/xla/service/collective_ops_utils.h:209] This thread has "
        "been waiting for 5000ms for and may be stuck: participant for device ordinal {at}, stream 0x5594682cb160 waiting for all participants "
        "to arrive at rendezvous RendezvousKey{{run_id=RunId: 85034, global_devices=[0,1,2,3], num_local_participants=4, "
        "collective_op_kind=cross_replica, op_id=534}}\n"
    )
    found = findings("".join(line.format(at=at) for at in (1, 0, 3)))
    assert {one.ranks for one in found} == {(2,)}


def test_ranks_that_number_below_those_that_are_ready_did_not_submit() -> None:
    text = STALLED + "Stalled ops: x_0 [ready ranks: 1, 7, 5, 4, 6, 0], y_0 [ready ranks: 1, 7, 5, 4, 6, 0]\n"
    (one,) = findings(text)
    assert one.ranks == (2, 3)
