"""Training logs: whose each line is, what the watchdog counted, and which error came first."""

import re

import pytest

from hangdog_models.collectives import NCCL_LOG, WATCHDOG, CollectiveRecord, RankCounters
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.reading.logs import log_lines, training_log
from hangdog_models.reading.logs.log_lines import LogLine, lines_of_log

WORK = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=32, NumelOut=32, "
    "Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)


def streams(text: str, rank: int | None = None) -> dict[int | None, training_log.Stream]:
    return {stream.rank: stream for stream in training_log.read(text, None if rank is None else Rank(rank))}


def counters(text: str, rank: int) -> RankCounters:
    found = streams(text, rank)[rank].counters
    assert found is not None
    return found


def findings(text: str, rank: int | None = 0) -> list[Finding]:
    return [
        finding
        for stream in training_log.read(text, None if rank is None else Rank(rank))
        for finding in stream.findings
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[rank3]:[E1] x", [LogLine("[E1] x", Rank(3))]),
        ("[rank: 3] seed", [LogLine("seed", Rank(3))]),
        ("[default2]:[rank10]: x", [LogLine("x", Rank(10), 2)]),
        (
            "\x1b[36m(Worker pid=71, ip=10.0.0.1)\x1b[0m [rank1]: x",
            [LogLine("x", Rank(1), process=71, address="10.0.0.1")],
        ),
        ("(Worker pid=71) x", [LogLine("x", process=71)]),
        ("step 3:  40%|####   | 4/10 [rank5]: x", [LogLine("step 3:  40%|####   | 4/10 "), LogLine("x", Rank(5))]),
        ("[rank0]: a[rank1]: b", [LogLine("a", Rank(0)), LogLine("b", Rank(1))]),
        ("50%|##\r100%|####", [LogLine("50%|##"), LogLine("100%|####")]),
        ("2026-01-02T03:04:05.678Z x", [LogLine("2026-01-02T03:04:05.678Z x", at_s=1767323045.0)]),
        ("2026-01-02 03:04:05,678 x", [LogLine("2026-01-02 03:04:05,678 x")]),
        ("[rank9999999]: x", [LogLine("x")]),
        ("[1,3]<stderr>:x", [LogLine("x", Rank(3))]),
        ("Fri Nov  8 14:58:45 2026[3]<stdout>: x", [LogLine("Fri Nov  8 14:58:45 2026"), LogLine("x", Rank(3))]),
        ("(EngineCore_DP0 pid=71) ERROR 10-24 16:30:27 [core.py:710]   x", [LogLine("  x", process=71)]),
    ],
)
def test_prefixes_tell_whose_a_line_is(line: str, expected: list[LogLine]) -> None:
    assert list(lines_of_log(line)) == expected


@pytest.mark.parametrize(
    ("line", "group", "description"),
    [
        ("[PG 7 Rank 1] Timeout at NCCL work: 12, last enqueued NCCL work: 14, last completed NCCL work: 11.", "7", ""),
        (
            "[PG 7 (TENSOR) Rank 1] Exception detected by watchdog at work: 12, last enqueued NCCL work: 14, last completed NCCL work: 11.",
            "7",
            "TENSOR",
        ),
        (
            "[PG ID 2PG GUID 7(dp) Rank 1]  at work sequence id: 12 PG status: last enqueued work: 14, last completed work: 11",
            "7",
            "dp",
        ),
    ],
)
def test_the_three_formats_of_the_watchdog(line: str, group: str, description: str) -> None:
    found = counters(f"[rank9]:[E1 x.cpp:1] [Rank 1] {WORK}\n[rank9]:[E1 x.cpp:2] {line}\n", 9)
    assert found.source == WATCHDOG
    assert (found.enqueued, found.completed) == ({group: 14}, {group: 11})
    assert found.descriptions == ({group: description} if description else {})
    assert found.entries == (CollectiveRecord(group, 12, "nccl:all_reduce", False, ((32,),), output_sizes=((32,),)),)


def test_a_started_number_is_read_where_there_is_one() -> None:
    status = (
        "[PG ID 0 PG GUID 0(default_pg) Rank 4] last enqueued work: 9, last started work: 8, last completed work: 7"
    )
    found = counters(status, 4)
    assert (found.enqueued, found.started, found.completed) == ({"0": 9}, {"0": 8}, {"0": 7})


def test_an_element_count_of_minus_one_is_none() -> None:
    work = WORK.replace("OpType=ALLREDUCE, NumelIn=32", "OpType=COALESCED, NumelIn=18446744073709551615")
    (entry,) = counters(f"[PG ID 0 PG GUID 0 Rank 2] {work}", 2).entries
    assert (entry.operation, entry.input_sizes, entry.output_sizes) == ("nccl:coalesced", (), ((32,),))


def test_a_number_inside_a_group_is_a_rank_only_in_the_default_group() -> None:
    of_default, of_other = "[PG ID 0 PG GUID 0(default_pg) Rank 5]", "[PG ID 3 PG GUID 21(tp) Rank 1]"
    found = streams(f"{of_default} last enqueued work: 4, last completed work: 4\n{of_other} {WORK}\n")
    assert set(found) == {5, None}
    assert found[None].counters is None and found[None].findings[0].rank is None


def test_a_local_rank_waits_for_somebody_who_knows_the_machine() -> None:
    (stream,) = training_log.read("[default3]:  what():  CUDA error: unknown error\n", None)
    assert (stream.rank, stream.local) == (None, 3)
    assert (stream.findings[0].impact, stream.findings[0].rank) == (Impact.RESET, None)


def test_operations_without_a_group_are_compared_with_equal_ones_only() -> None:
    first, second = counters(f"[Rank 0] {WORK}", 0), counters(f"[Rank 1] {WORK.replace('12', '13')}", 1)
    assert set(first.enqueued) & set(second.enqueued) == set()
    assert counters(f"[Rank 1] {WORK}", 1).enqueued == first.enqueued


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (WORK, "all_reduce 12 of group dp was given up after 600 s; who waits"),
        (WORK.replace("ran for 600012", "ran for 2100"), "long before its time: a connection was closed"),
        (WORK.replace("SeqNum=12", "SeqNum=1"), "the group's first: start-up or transport"),
    ],
)
def test_who_times_out_is_a_victim(work: str, words: str) -> None:
    (finding,) = findings(f"[PG ID 3 PG GUID 21(dp) Rank 1] {work}")
    assert (finding.code, finding.impact) == ("watchdog time-out", Impact.VICTIM)
    assert words in finding.what


DESYNC = f"""\
[Rank 0] {WORK}
 - [0] Timeout at collective: ALLREDUCE, #13
 - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
   - [1, 2] finished collective #11, but didn't join collective #12 (count from 1)
   - [3] joined but didn't finish collective #13 (count from 1)
"""


@pytest.mark.parametrize(
    ("error", "code", "impact"),
    [
        ("invalid usage (run with NCCL_DEBUG=WARN for details)", "NCCL refuses an operation", Impact.PROGRAM),
        ("remote process exited or there was a network error", "NCCL remote error", Impact.VICTIM),
    ],
)
def test_an_error_that_nccl_reports_of_an_operation_is_no_time_out(error: str, code: str, impact: Impact) -> None:
    """Recorded with torch 2.11 and NCCL 2.28.9 where rank 1 of 4 had left an all_reduce out."""
    result = "ncclInvalidUsage: This usually" if impact is Impact.PROGRAM else "ncclRemoteError: A call failed possibly"
    text = (
        "[rank2]:[E1126 06:11:30.921322523 ProcessGroupNCCL.cpp:612] [Rank 2] Collective WorkNCCL(SeqNum=95, OpType=ALLREDUCE, "
        f"NumelIn=1, NumelOut=1, Timeout(ms)=600000) raised the following async exception: NCCL error: {error}, NCCL version "
        f"2.28.9\n{result} reflects something.\n"
        "[rank2]:[E1126 06:11:30.922506708 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID 0(default_pg) Rank 2]  failure detected "
        "by watchdog at work sequence id: 95 PG status: last enqueued work: 95, last completed work: 94\n"
    )
    assert [(one.code, one.impact) for one in findings(text, 2)] == [(code, impact)]
    counted = counters(text, 2)
    assert (counted.enqueued, counted.completed) == ({"0": 95}, {"0": 94})
    assert [(entry.operation, entry.done) for entry in counted.entries] == [("nccl:all_reduce", False)]


def test_a_desync_report_counts_from_one() -> None:
    found = streams(DESYNC, 0)
    counts = [found[rank].counters for rank in range(4)]
    assert counts[0] is not None
    (group,) = counts[0].enqueued
    assert [(c.enqueued, c.completed) for c in counts[1:] if c] == [
        ({group: 10}, {group: 10}), ({group: 10}, {group: 10}), ({group: 12}, {group: 11}),
    ]  # fmt: skip
    assert not found[1].own and found[0].own
    (report,) = (f for f in found[0].findings if f.code == "desync report")
    assert (report.ranks, report.impact) == ((1, 2, 3), Impact.VICTIM)


def test_ranks_that_never_joined() -> None:
    text = (
        f"[Rank 0] {WORK}\n - [0] Timeout at collective: ALLREDUCE, #13\n - To our best knowledge, ranks [2] are the "
    )
    found = streams(text + "lagging ranks that caused this timeout. They never joined any collectives\n", 0)
    assert found[2].counters is not None and set(found[2].counters.enqueued.values()) == {-1}


def test_a_desync_report_of_another_group_names_no_rank_of_the_job() -> None:
    found = streams(DESYNC.replace("[Rank 0]", "[PG ID 3 PG GUID 21(tp) Rank 0]"), 8)
    assert set(found) == {8}
    assert found[8].findings[-1].ranks == ()


FINGERPRINTS = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {a} is running collective: CollectiveFingerPrint("
    "SequenceNumber=6, OpType=ALLREDUCE, TensorShape=[20, 10], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(x)), "
    "but Rank {b} is running collective: CollectiveFingerPrint(SequenceNumber=6, OpType=BARRIER).Collectives differ"
)


def test_both_fingerprints_are_kept() -> None:
    found = streams("[rank1]: " + FINGERPRINTS.format(a=1, b=0))
    entries = [stream.counters.entries[0] for stream in found.values() if stream.counters]
    assert [(e.operation, e.sequence, e.input_sizes, e.dtypes) for e in entries] == [
        ("nccl:barrier", 6, (), ()), ("nccl:all_reduce", 6, ((20, 10),), ("Float",)),
    ]  # fmt: skip
    (finding,) = found[1].findings
    assert (finding.impact, finding.ranks) == (Impact.PROGRAM, (1, 0))
    assert re.search(r"\brank 1: all_reduce .*\[20, 10\] .*\b6; rank 0: barrier .*\b6\b", finding.what)


def test_fingerprints_with_numbers_inside_a_group_name_only_the_speaker() -> None:
    found = streams("[rank9]: " + FINGERPRINTS.format(a=1, b=0))
    assert set(found) == {9} and found[9].counters is None
    assert found[9].findings[0].ranks == (9,)


CALL = (
    "host:1:2 [0] NCCL INFO {op}: opCount {count} sendbuff 0x1 recvbuff 0x2 count 8 datatype 7 op 0 root 0 "
    "comm {comm} [nranks={size}] stream 0x3"
)


def test_calls_of_nccl_count_in_hexadecimal() -> None:
    text = "\n".join(CALL.format(op="AllReduce", count=f"{n:x}", comm="0xa", size=4) for n in range(0x1D, 0x1F))
    found = counters(text, 3)
    assert (found.source, found.enqueued, found.completed) == (NCCL_LOG, {"communicator of 4 ranks": 30}, {})
    assert found.entries[-1] == CollectiveRecord(
        "communicator of 4 ranks", 30, "nccl:all_reduce", False, ((8,),), ("float32",)
    )


def test_communicators_go_by_their_id_or_by_a_size_that_is_theirs_alone() -> None:
    made = (
        "host:1:2 [0] NCCL INFO ncclCommInitRank comm 0xa rank 3 nranks 4 cudaDev 0 nvmlDev 3 busId 1b000 commId 0xfe"
    )
    calls = [CALL.format(op="AllGather", count="1", comm=c, size=s) for c, s in (("0xa", 4), ("0xb", 4), ("0xc", 8))]
    found = counters("\n".join([made, *calls]), 3)
    assert found.enqueued == {"communicator 0xfe": 1, "communicator of 8 ranks": 1}


def test_a_call_may_tell_the_rank_itself() -> None:
    line = CALL.format(op="AllReduce", count="1", comm="0xa", size=4) + " task 0 globalrank 6"
    assert set(streams(line)) == {6}


@pytest.mark.parametrize(
    ("arrived", "code", "bearing"),
    [(3, "store barrier, ranks missing", Impact.VICTIM), (5, "store barrier, too many", Impact.PROGRAM)],
)
def test_the_store_barrier_counts_workers(arrived: int, code: str, bearing: Impact) -> None:
    line = (
        "Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 "
        f"(world_size=4, worker_count={arrived}, timeout=0:30:00)\n"
    )
    (finding,) = findings(line * 3)
    assert (finding.code, finding.impact, finding.times) == (code, bearing, 3)
    assert (
        findings(line + "Rank 0: Completed store-based barrier for key:store_based_barrier_key:1 with 4 nodes.") == []
    )


def test_the_first_failure_that_the_launcher_saw_is_a_victim() -> None:
    text = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_00:00:00\n  host      : gpu-a\n"
        "  rank      : 7 (local_rank: 7)\n  exitcode  : -9 (pid: 3)\n"
    )
    (finding,) = findings(text, None)
    assert (finding.machine, finding.rank, finding.impact, finding.ranks) == ("gpu-a", 7, Impact.VICTIM, ())
    assert re.search(r"\brank 7 on gpu-a .* -9\b", finding.what)


def test_an_operation_that_was_given_up_is_told_though_no_line_says_which_it_is() -> None:
    line = "[rank11]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 11] Timeout at NCCL work: 15734, last enqueued NCCL work: 15735, last completed NCCL work: 15733.\n"
    (one,) = findings(line, None)
    assert (one.code, one.impact, one.rank) == ("watchdog time-out", Impact.VICTIM, 11)
    assert all(value in one.what for value in ("15734", "group 1", "15733"))


TRACEBACK = '{p}Traceback (most recent call last):\n{p}  File "t.py", line 3, in <module>\n{p}    main()\n{p}{error}\n'


def test_of_a_process_the_first_error_counts_and_ranks_are_told_apart() -> None:
    first = TRACEBACK.format(p="[rank0]: ", error="ValueError: a bad batch").splitlines()
    second = TRACEBACK.format(p="[rank1]: ", error="RuntimeError: Connection closed by peer [10.0.0.1]:33").splitlines()
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    mixed += ["[rank0]: RuntimeError: CUDA error: device-side assert triggered"]
    found: dict[int | None, tuple[Finding, ...]] = {
        stream.rank: stream.findings for stream in training_log.read("\n".join(mixed), None)
    }
    (own,) = found[0]
    assert (own.code, own.impact) == ("ValueError", Impact.PROGRAM) and own.what.endswith("ValueError: a bad batch")
    assert [(f.code, f.impact, f.peers) for f in found[1]] == [("connection lost", Impact.VICTIM, ("10.0.0.1",))]


def test_a_broken_device_is_no_consequence() -> None:
    text = TRACEBACK.format(p="", error="ValueError: x") + "CUDA error: uncorrectable ECC error encountered\n"
    assert [f.impact for f in findings(text)] == [Impact.PROGRAM, Impact.CONVICTS]


def test_an_error_long_after_a_harmless_one_is_news() -> None:
    text = "wandb: Connection reset by peer\n" + "loss 0.5\n" * 3000 + TRACEBACK.format(p="", error="KeyError: 'x'")
    assert [f.code for f in findings(text)] == ["connection lost", "KeyError"]


def test_a_line_that_only_looks_like_an_exception_is_none() -> None:
    assert findings("ValueError: printed by somebody, no traceback before\n") == []


def test_a_log_in_which_nothing_is_known_says_nothing() -> None:
    assert training_log.read("epoch 1, loss 2.0\n" * 100, Rank(0)) == ()
    assert not training_log.recognises("epoch 1, loss 2.0\n")


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("2025-02-23 16:24:18,500 [titan] step: 3\nno date\n", 1740327858.0),
        ("[rank3]: 2025-02-23T16:24:18Z x\r\n", 1740327858.0),
        ("2025-02-23 17:24:18 +01:00 x", 1740327858.0),
        ("2025-02-30 17:24:18 x", None),
        ("step 3", None),
        (f"{'x' * 100} 2025-02-23 16:24:18 is what it says", None),
    ],
)
def test_a_log_goes_until_the_last_date_that_begins_a_line(text: str, at_s: float | None) -> None:
    assert log_lines.end(text) == at_s


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("EI0006: [PID: 7] 2026-01-02-03:04:05.006 Getting socket times out. Reason: it did not send. Solution", ["HCCL no connection"]),
        ("EI0005: The parameters of operator x are inconsistent between ranks", ["HCCL operations differ"]),
        ("step 4", []),
    ],
)  # fmt: skip
def test_the_lines_after_an_error_of_an_npu_say_what_its_number_means(after: str, expected: list[str]) -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
    call = "RuntimeError: InnerRunOpApi:x.cpp:281 OPS function error: HcclAllreduce, error code is 6"
    text = "".join(f"[rank1]: {line}\n" for line in f"{trace}{call}\n[ERROR] ERR01100\n{after}".splitlines())
    found = findings(text, None)
    assert [one.code for one in found] == ["NPU call failed", *expected]
    assert {one.rank for one in found} == {1}


def test_a_time_out_of_an_npu_is_explained_by_the_lines_after_it() -> None:
    found = findings(
        "NPU function error: x, error code is 507048\nEI0002: Notify register times out\nCUDA out of memory\n"
    )
    assert [(one.code, one.impact) for one in found] == [
        ("NPU time-out", Impact.VICTIM),
        ("HCCL time-out", Impact.VICTIM),
    ]


def test_a_traceback_that_vllm_logs_line_by_line_is_read() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nTimeoutError\n'
    head = "(EngineCore_DP0 pid=71) ERROR 10-24 16:30:27 [core.py:710] "
    found = findings("".join(f"{head}{line}\n" for line in trace.splitlines()), None)
    assert [(one.code, one.impact) for one in found] == [("distributed call failed", Impact.VICTIM)]


@pytest.mark.parametrize(
    ("ending", "impact"),
    [
        ("ValueError: the timeout of a connection must be positive", Impact.PROGRAM),
        ("RuntimeError: Expected all tensors to be on the same device, but found cuda:0 and cpu!", Impact.PROGRAM),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 4x8)", Impact.PROGRAM),
        ("jaxlib.xla_extension.XlaRuntimeError: INVALID_ARGUMENT: deadline of shape f32[4]", Impact.PROGRAM),
        ("jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: the barrier was not passed", Impact.VICTIM),
        ("RuntimeError: npuSynchronizeDevice:csrc/NPUStream.cpp:4 NPU function error: aclrtSynchronize", Impact.VICTIM),
        ("RuntimeError: HIP error: something that is new", Impact.VICTIM),
        ("OSError: [Errno 110] Connection timed out", Impact.VICTIM),
        ("ray.exceptions.GetTimeoutError: Get timed out", Impact.VICTIM),
    ],
)
def test_an_error_from_below_the_program_is_not_its_code_by_itself(ending: str, impact: Impact) -> None:
    log = f'Traceback (most recent call last):\n  File "train.py", line 8, in main\n    step()\n{ending}\n'
    ((found,),) = (stream.findings for stream in training_log.read(log, Rank(3)))
    assert (found.impact, found.rank) == (impact, Rank(3))
    assert ending.partition(": ")[2] in found.what


OLD = "[E ProcessGroupNCCL.cpp:566] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(OpType={operation}, Timeout(ms)=1800000) ran for 1800500 milliseconds before timing out.\n"


def gave_up(*sides: tuple[int, str]) -> dict[str, Finding]:
    text = "".join(OLD.format(rank=rank, operation=operation) for rank, operation in sides)
    return {one.code: one for stream in training_log.read(text, None) for one in stream.findings}


def test_without_a_number_nothing_is_said_of_order() -> None:
    found = gave_up((0, "ALLREDUCE"), (1, "ALLREDUCE"))
    assert found.keys() == {"watchdog time-out"}
    assert "-1" not in found["watchdog time-out"].what and "first" not in found["watchdog time-out"].what


def test_ranks_of_one_group_in_different_operations_are_a_mismatch() -> None:
    found = gave_up((0, "ALLREDUCE"), (1, "BROADCAST"), (2, "BROADCAST"))["mismatched collectives"]
    assert (found.impact, found.ranks) == (Impact.PROGRAM, (0,))
    assert "rank 0: all_reduce; ranks 1-2: broadcast" in found.what
    assert gave_up((0, "ALLREDUCE"), (1, "BROADCAST"))["mismatched collectives"].ranks == (0, 1)
    several = gave_up((0, "ALLREDUCE"), (1, "BROADCAST"), (2, "BROADCAST"), (2, "ALLREDUCE"))
    assert several.keys() == {"watchdog time-out"}


def test_the_watchdog_tells_on_whose_gpu_an_error_was() -> None:
    error = "CUDA error: uncorrectable ECC error encountered"
    text = f"RuntimeError: {error}\n[E ProcessGroupNCCL.cpp:916] [Rank 5] NCCL watchdog thread terminated with exception: {error}\n"
    (found,) = training_log.read(text, None)[0].findings
    assert (found.rank, found.impact, found.times) == (Rank(5), Impact.CONVICTS, 2)


@pytest.mark.parametrize(
    "text",
    [
        "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: a. Timed out task names:\n/job:w/replica:0/task:3\n/job:w/replica:0/task:0\nnext /job:w/replica:0/task:9\n",
        "x Barrier timed out. Some timed out task names:\\n/job:w/replica:0/task:3\\n/job:w/replica:0/task:0\\n\n",
    ],
)
def test_a_barrier_of_jax_names_the_tasks_that_did_not_come(text: str) -> None:
    found = [one for stream in training_log.read(text, None) for one in stream.findings if one.ranks]
    assert [(one.code, one.impact, one.ranks) for one in found] == [("JAX coordination", Impact.VICTIM, (0, 3))]


def test_rays_prefix_names_the_machine_where_nothing_else_does() -> None:
    line = "(train pid=39, ip=10.0.0.5) E0827 driver.cc:8] !!!! FATAL ERROR !!!! for [/dev/accel0 t]\n"
    (stream,) = training_log.read(line, None)
    assert (stream.host, stream.findings[0].device) == ("10.0.0.5", "/dev/accel0")


def test_a_path_that_fails_after_a_port_event_is_no_consequence_of_it() -> None:
    text = (
        "n1:1:2 [0] misc/ibvwrap.cc:190 NCCL WARN NET/IB : Got async event : port error\n"
        "n1:1:2 [0] net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.3<5486> with error 12, opcode 0, len 0, vendor err 129 (Recv)\n"
    )
    found = [finding for stream in training_log.read(text, None) for finding in stream.findings]
    assert [(one.code, one.peers) for one in found] == [("IB port event", ()), ("IB error 12", ("10.0.0.3",))]


@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
def test_what_nccl_warned_of_last_is_read_as_its_warning(prefix: str) -> None:
    lines = (
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1970, unhandled cuda error, NCCL version 2.21.5",
        "ncclUnhandledCudaError: Call to CUDA function failed.", "Last error:", "Cuda failure 'out of memory'",
    )  # fmt: skip
    read = training_log.read("".join(f"{prefix}{line}\n" for line in lines), None)
    assert "GPU out of memory" in {finding.code for stream in read for finding in stream.findings}


def test_a_machine_that_ray_lost_is_named_where_drivers_print_it() -> None:
    text = "WARNING worker.py:1257 -- The node with node id: 9f7 and ip: 10.0.0.3 has been marked dead because the detector has missed too many heartbeats from it.\n"
    assert training_log.recognises(text)
    (finding,) = (one for stream in training_log.read(text, None) for one in stream.findings)
    assert (finding.code, finding.machine) == ("node failure", "10.0.0.3")


NUMBERED = "[E ProcessGroupNCCL.cpp:457] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=304640, NumelOut=304640, Timeout(ms)=1800000) ran for 1800035 milliseconds before timing out.\n"


def test_ranks_that_gave_up_one_operation_in_one_log_are_each_counted() -> None:
    streams = training_log.read("".join(NUMBERED.format(rank=rank, number=1132079) for rank in (3, 2, 1)), None)
    counted = {stream.rank: stream.counters for stream in streams if stream.counters is not None}
    assert set(counted) == {1, 2, 3}
    assert all(set(one.least_sizes.values()) == {4} for one in counted.values()), (
        "rank 3 of a group: it has four members at the least"
    )
    several = NUMBERED.format(rank=0, number=7) + NUMBERED.format(rank=0, number=8) + NUMBERED.format(rank=7, number=9)
    assert not [stream for stream in training_log.read(several, None) if stream.counters and stream.rank is not None]


def test_a_rank_that_determined_writes_before_its_line_is_the_jobs() -> None:
    line = "[2024-02-27T21:35:28.705869Z] fa88a9df [rank=1] || " + NUMBERED.format(rank=1, number=4)
    assert [stream.rank for stream in training_log.read(line, None)] == [1]
