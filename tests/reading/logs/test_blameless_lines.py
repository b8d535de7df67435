"""Lines that look like a fault and blame nobody: what is printed of every collective, and errors of those who waited for others."""

import pytest

from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.logs import training_log
from hangdog_models.reading.logs.traceback_lines import impact_of

PRINT = "CollectiveFingerPrint(SequenceNumber={number}, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float)"
RUNNING = "[I ProcessGroupWrapper.cpp:562] [Rank {rank}] Running collective: " + PRINT
TRACE = 'Traceback (most recent call last):\n  File "/srv/train/go.py", line 8, in main\n    go()\n'


def findings(text: str) -> list[Finding]:
    return [finding for stream in training_log.read(text, None) for finding in stream.findings]


def test_what_is_printed_before_every_collective_is_no_mismatch() -> None:
    lines = [RUNNING.format(rank=rank, number=number) for number in (71, 72) for rank in (0, 1)]
    assert findings("\n".join(lines)) == []


def test_a_time_out_that_quotes_what_ran_is_no_mismatch() -> None:
    quoted = PRINT.format(number=72)
    line = f"ProcessGroupWrapper: Monitored Barrier encountered error running collective: {quoted}. Error: Rank 3 failed to pass monitoredBarrier in 1800000 ms"
    (finding,) = findings(f"{TRACE}RuntimeError: {line}\n")
    assert (finding.code, finding.impact, finding.ranks) == ("monitored barrier", Impact.VICTIM, (3,))


def test_the_error_beside_what_is_printed_is_a_mismatch() -> None:
    quoted = PRINT.format(number=72)
    error = f"[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: {quoted}, but Rank 1 is running collective: {quoted}."
    (finding,) = findings(f"{RUNNING.format(rank=0, number=72)}\n{error}\n")
    assert (finding.code, finding.impact, finding.ranks) == ("mismatched collectives", Impact.PROGRAM, (0, 1))


@pytest.mark.parametrize(
    ("name", "message", "impact"),
    [
        ("ValueError", "rank 2 is done, but there are other ranks that didn't finish their warm-up", Impact.VICTIM),
        ("RuntimeError", "Timed out after 600 s waiting for engines", Impact.VICTIM),
        ("AssertionError", "timed out while waiting for the shards", Impact.VICTIM),
        ("RuntimeError", "Some workers failed to register within 300 s", Impact.VICTIM),
        ("RuntimeError", "not all nodes are up: only 3 of 4 nodes have joined", Impact.VICTIM),
        ("KeyError", "'layers.0'", Impact.PROGRAM),
        ("RuntimeError", "unexpected end of the file", Impact.PROGRAM),
        ("ValueError", "the number of ranks must be even", Impact.PROGRAM),
        ("AssertionError", "shape differs from that of other ranks", Impact.PROGRAM),
        ("TypeError", "wait() got an unexpected keyword argument 'timeout'", Impact.PROGRAM),
        ("RuntimeError", "the model has not all weights of the checkpoint", Impact.PROGRAM),
    ],
)
def test_an_error_that_says_that_others_did_not_come_is_a_victims(name: str, message: str, impact: Impact) -> None:
    assert impact_of(name, message) is impact
    (finding,) = findings(f"{TRACE}{name}: {message}\n")
    assert (finding.code, finding.impact) == (name, impact)
    assert ("waited for others" in finding.what) is (impact is Impact.VICTIM)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("XGBoostError", "[13:51:46] /w/xgboost/src/collective/result.cc:83: [histogram.h:197|13:51:46]:"),
        ("LightGBMError", "Socket send error, Broken pipe (code: 32)"),
        ("InternalError", "Collective ops is aborted by: failed to connect to all addresses"),
        ("RuntimeError", "Encountered EOF. The other end is likely closed."),
    ],
)
def test_an_error_of_who_lost_another_process_is_not_its_codes(name: str, message: str) -> None:
    (finding,) = findings(f"{TRACE}{name}: {message}\n")
    assert (finding.code, finding.impact) == (name, Impact.VICTIM) and "comes from below" in finding.what


NCCL = "gpu-c:71:{thread} [{device}] {words}\n"


def nccl(words: str, thread: int = 90, device: int = 2) -> str:
    return NCCL.format(words=words, thread=thread, device=device)


CLOSED = "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer {peer}<51159>"


def test_memory_that_is_used_up_is_no_consequence_of_a_lost_connection() -> None:
    text = nccl(CLOSED.format(peer="gpu-d")) + nccl(
        "include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'", 91, 5
    )
    text += nccl("include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes", 91, 5)
    found = findings(text)
    assert [(one.code, one.impact) for one in found] == [
        ("connection lost", Impact.VICTIM), ("GPU out of memory", Impact.PROGRAM), ("NCCL failed", Impact.TELLS_NOTHING),
    ]  # fmt: skip
    assert found[1].device == "5"


def test_a_lost_connection_is_a_consequence_of_memory_that_is_used_up() -> None:
    text = nccl("include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'") + nccl(CLOSED.format(peer="gpu-d"))
    assert [one.code for one in findings(text)] == ["GPU out of memory"]


@pytest.mark.parametrize("own", ["gpu-c", "gpu-c.cluster.example", "gpu-c-ib.cluster.example", "gpu-c-ib0"])
def test_the_machine_that_reports_is_not_the_other_end(own: str) -> None:
    (finding,) = findings(nccl(CLOSED.format(peer=own)))
    assert (finding.peers, "other end:" in finding.what, own in finding.what) == ((), False, False)


def test_nor_is_an_address_that_it_tells_as_its_own() -> None:
    text = nccl("NCCL INFO Bootstrap : Using eth0:10.7.0.3<0>") + nccl(CLOSED.format(peer="10.7.0.3"))
    assert [one.peers for one in findings(text)] == [()]


@pytest.mark.parametrize("other", ["gpu-d", "gpu-c1", "10.7.0.4", "gpu-d-ib.cluster.example"])
def test_another_machine_is_named(other: str) -> None:
    assert [one.peers for one in findings(nccl(CLOSED.format(peer=other)))] == [(other,)]


@pytest.mark.parametrize("call", ["recv from", "send to"])
def test_the_first_line_that_names_the_other_end_tells_who_it_is(call: str) -> None:
    first = f"misc/socket.cc:518 NCCL WARN Net : Call to {call} 10.7.0.4<58355> failed : Broken pipe"
    (finding,) = findings(nccl(first) + nccl(CLOSED.format(peer="gpu-c.cluster")) + nccl(CLOSED.format(peer="gpu-f")))
    assert (finding.code, finding.impact, finding.peers) == ("connection lost", Impact.VICTIM, ("10.7.0.4",))


def test_a_later_line_names_the_other_end_where_the_first_does_not() -> None:
    text = (
        nccl(CLOSED.format(peer="gpu-c.cluster"))
        + nccl(CLOSED.format(peer="gpu-d"))
        + nccl(CLOSED.format(peer="gpu-e"))
    )
    assert [one.peers for one in findings(text)] == [(), ("gpu-d",)]
