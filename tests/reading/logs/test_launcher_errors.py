"""What torchrun leaves of a failure: its list, whose first entry is the first end it saw, and the error file of a process.

Layouts as in torch/distributed/elastic/multiprocessing/errors of torch 2.13, and pytorch/pytorch#66182, #64036.
"""

import json
import re
from dataclasses import replace

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.reading.logs import error_file, training_log

LIST = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-25_09:00:10
  host      : gpu-1
  rank      : 12 (local_rank: 4)
  exitcode  : -15 (pid: 100)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 100
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-25_09:00:05
  host      : gpu-1
  rank      : 11 (local_rank: 3)
  exitcode  : {exitcode} (pid: 99)
  error_file: /tmp/torchelastic/attempt_0/3/error.json
  traceback : {message}
============================================================
"""
TRACE = """Traceback (most recent call last):
    File "/x/errors/__init__.py", line 355, in wrapper
      return f(*args, **kwargs)
    File "train.py", line 8, in main
      step()
  {error}
  """


def findings(text: str) -> list[Finding]:
    return [finding for stream in training_log.read(text, None) for finding in stream.findings if finding.rank == 11]


@pytest.mark.parametrize(
    ("exitcode", "code", "impact"),
    [
        ("-9", "killed", Impact.VICTIM),
        ("-11", "segmentation fault", Impact.PROGRAM),
        ("-7", "bus error", Impact.PROGRAM),
        ("-6", "first observed failure", Impact.VICTIM),
        ("-15", "ended by the launcher", Impact.TELLS_NOTHING),
        ("1", "first observed failure", Impact.VICTIM),
    ],
)
def test_the_signal_of_the_first_end_tells_what_it_can(exitcode: str, code: str, impact: Impact) -> None:
    (finding,) = findings(LIST.format(exitcode=exitcode, message="Signal received by PID 99"))
    assert (finding.code, finding.impact, finding.machine) == (code, impact, "gpu-1")


@pytest.mark.parametrize(
    ("error", "code", "impact"),
    [
        ("ValueError: a bad batch", "ValueError", Impact.PROGRAM),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "CUDA uncorrectable ECC", Impact.CONVICTS),
        ("RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.7]:33", "connection lost", Impact.VICTIM),
    ],
)
def test_the_traceback_of_the_first_end_is_read(error: str, code: str, impact: Impact) -> None:
    found = findings(LIST.format(exitcode="1", message=TRACE.format(error=error)))
    assert [(f.code, f.impact, f.machine) for f in found] == [
        (code, impact, "gpu-1"), ("first observed failure", Impact.VICTIM, "gpu-1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "beginning", ["[0]:", "  time      : 2026-11-25_09:00:05", "  host      : gpu-1\n  rank      : 11", "------\nRoot"]
)
@pytest.mark.parametrize("message", ["Signal received by PID 99", TRACE.format(error="ValueError: a bad batch")])
def test_a_list_whose_beginning_is_cut_off_tells_the_same(beginning: str, message: str) -> None:
    """As of `tail`: the last entry is the first failure, and it needs no line above it."""
    whole = LIST.format(exitcode="-9", message=message)
    cut = whole[whole.rindex(beginning) :]
    assert training_log.recognises(cut)
    found, expected = findings(cut), findings(whole)
    assert [replace(one, machine="gpu-1") for one in found] == expected


def test_a_cut_list_may_have_lost_the_rank() -> None:
    whole = LIST.format(exitcode="-9", message="x")
    cut = whole[whole.rindex("  exitcode") :]
    (finding,) = (one for stream in training_log.read(cut, None) for one in stream.findings)
    assert (finding.code, finding.rank, finding.machine) == ("killed", None, "")


@pytest.mark.parametrize("end", ["Root Cause", "[0]:\n", "  rank      : 11"])
def test_of_a_list_that_is_cut_on_both_sides_no_entry_is_the_first_failure(end: str) -> None:
    whole = LIST.format(exitcode="-9", message="x")
    assert not [
        one
        for stream in training_log.read(whole[whole.index("  time") : whole.index(end)], None)
        for one in stream.findings
    ]


@pytest.mark.parametrize(
    "text",
    [
        "  host      : gpu-1\n  rank      : 11 (local_rank: 3)\n============\n",  # a banner
        "  host      : gpu-1\n  rank      : 11 (local_rank: 3)\n  exitcode  : -9 (pid: 3)\n" + "x\n" * 500 + "=====\n",
    ],
)
def test_what_only_looks_like_an_entry_is_none(text: str) -> None:
    assert not [one for stream in training_log.read(text, None) for one in stream.findings]


def test_lines_behind_the_list_are_read_as_ever() -> None:
    text = LIST.format(exitcode="-9", message="x") + "[rank3]: RuntimeError: CUDA error: unknown error\n"
    streams = {stream.rank: stream for stream in training_log.read(text, None)}
    assert [finding.impact for finding in streams[Rank(3)].findings] == [Impact.RESET]


def document(message: str, trace: object, timestamp: object = "1700000000") -> object:
    text = {"message": {"message": message, "extraInfo": {"py_callstack": trace, "timestamp": timestamp}}}
    return json.loads(json.dumps(text))


def test_ranks_that_disagree_are_told_though_only_a_later_entry_of_the_list_is_left() -> None:
    """As in pytorch/pytorch#148976: a barrier, and no blank between its number and its name."""
    told = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint"
        "(SequenceNumber=1OpType=BARRIER), but Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=BARRIER)."
    )
    entry = LIST.format(exitcode="1", message=TRACE.format(error=told)).partition("Root Cause")[2]
    whole = LIST.format(exitcode="1", message=TRACE.format(error=told))
    for text in ("train.py FAILED\nFailures:\n[1]:" + entry.partition("[0]:")[2], whole):
        found = [one for stream in training_log.read(text, None) for one in stream.findings]
        (said,) = [one for one in found if one.code == "mismatched collectives"]
        assert said.impact is Impact.PROGRAM and said.ranks == (1, 2)
        assert re.search(r"\brank 1: barrier .*\b1; rank 2: barrier .*\b0\b", said.what)


def test_a_meeting_of_launchers_that_closed_is_no_bug_of_the_program() -> None:
    text = 'Traceback (most recent call last):\n  File "/bin/torchrun", line 8, in <module>\n    main()\ntorch.distributed.elastic.rendezvous.api.RendezvousClosedError\n'
    (one,) = (found for stream in training_log.read(text, None) for found in stream.findings)
    assert (one.code, one.impact) == ("RendezvousClosedError", Impact.VICTIM)


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: ACL stream synchronize failed, error code:507018",
        "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.",
        "RuntimeError: [Rank:3] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1073741824 (1024)MB",
        "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
    ],
)
def test_errors_of_other_accelerators_come_from_below_the_program(error: str) -> None:
    text = f'Traceback (most recent call last):\n  File "train.py", line 8, in <module>\n    x.item()\n{error}\n'
    found = [one for stream in training_log.read(text, None) for one in stream.findings]
    assert found and not [one for one in found if one.impact is Impact.PROGRAM]


def test_the_first_end_is_told_with_its_machine_where_that_has_a_name() -> None:
    text = LIST.format(exitcode="-11", message="Signal received by PID 99")
    assert "rank 11 on gpu-1 end" in findings(text)[0].what
    assert "rank 11 end" in findings(text.replace(": gpu-1", ": localhost"))[0].what


def test_an_error_file_is_the_end_of_its_process() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "train.py", line 8, in main\n    step()\nValueError: bad batch\n'
    )
    (stream,) = error_file.read(document("ValueError: bad batch", trace), Rank(3))
    (finding,) = stream.findings
    assert (finding.rank, finding.code, finding.impact, finding.at_s) == (3, "ValueError", Impact.PROGRAM, 1.7e9)


@pytest.mark.parametrize(
    ("message", "trace", "timestamp", "code"),
    [
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/srv/train/missing.bin'",
            ('Traceback (most recent call last):\n  File "/opt/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 367, in wrapper\n'
            '    return f(*args, **kwargs)\n           ^^^^^^^^^^^^^^^^^^\n  File "/srv/train/fail.py", line 10, in main\n    load("/srv/train/missing.bin")\n'
            '  File "/srv/train/fail.py", line 5, in load\n    with open(path) as file:\n         ^^^^^^^^^^\n'
            "FileNotFoundError: [Errno 2] No such file or directory: '/srv/train/missing.bin'\n"),
            "1795662173",
            "FileNotFoundError",
        ),
        (
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)",
            ('Traceback (most recent call last):\n  File "/opt/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 367, in wrapper\n'
            '    return f(*args, **kwargs)\n           ^^^^^^^^^^^^^^^^^^\n  File "/srv/train/fail2.py", line 6, in main\n    torch.zeros(2, 3) @ torch.zeros(2, 3)\n'
            "    ~~~~~~~~~~~~~~~~~~^~~~~~~~~~~~~~~~~~~\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)\n"),
            "1795662175",
            "RuntimeError",
        ),
    ],
)  # fmt: skip
def test_error_files_that_torch_wrote(message: str, trace: str, timestamp: str, code: str) -> None:
    """Recorded with torch 2.13: functions that `record` wraps; only folders were renamed."""
    (stream,) = error_file.read(document(message, trace, timestamp), Rank(3))
    (finding,) = stream.findings
    assert (finding.code, finding.impact, finding.at_s) == (code, Impact.PROGRAM, float(timestamp))
    assert message in finding.what


def test_without_a_traceback_the_message_counts() -> None:
    """torch before 1.10 writes the stack of the writer as a list: pytorch/pytorch#64036."""
    stack = ['  File "fail.py", line 7, in <module>\n    main()\n', '  File "errors.py", line 26, in _write_error\n']
    (stream,) = error_file.read(document("RuntimeError: CUDA error: unknown error", stack, 17), None, 5)
    assert (stream.rank, stream.local, stream.findings[0].impact) == (None, 5, Impact.RESET)


@pytest.mark.parametrize("other", [{}, {"message": "x"}, {"message": {"message": 3, "extraInfo": {}}}, [1], None])
def test_what_is_no_error_file_is_refused(other: object) -> None:
    assert not error_file.recognises(other)
    with pytest.raises(UnreadableEvidence):
        error_file.read(other, None)


def test_counts_without_any_prefix_belong_to_the_rank_of_the_file() -> None:
    text = "Last enqueued NCCL work: 14, last completed NCCL work: 11.\n"
    (stream,) = training_log.read(text, Rank(3))
    assert stream.counters is not None and stream.rank == 3
    assert (list(stream.counters.enqueued.values()), list(stream.counters.completed.values())) == ([14], [11])
    (finding,) = stream.findings
    assert (finding.code, finding.impact) == ("watchdog time-out", Impact.VICTIM)


def test_counts_of_several_groups_without_names_are_compared_with_nobody() -> None:
    text = "last enqueued NCCL work: 14, last completed NCCL work: 11.\nlast enqueued NCCL work: 3, last completed NCCL work: 2.\n"
    assert all(stream.counters is None for stream in training_log.read(text, Rank(3)))


def test_nccl_names_the_host_and_its_addresses() -> None:
    text = (
        "gpu-3:5776:5776 [0] NCCL INFO Bootstrap : Using eth0:10.2.0.4<0>\n"
        "gpu-3:5776:5898 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.2.0.4<0>\n"
        "[2026-03-03 12:11:38] gpu-4:9:8 [1] transport/net_ib.cc:2453 NCCL WARN NET/IB: Got completion from peer 10.9.91.63<51161> "
        "with status=12 opcode=1 len=0 vendor err 129 (Send) localGid ::ffff:10.9.92.59 remoteGids::ffff:10.9.91.64 hca mlx5_1\n"
    )
    first, second = training_log.read(text, None)
    assert (first.host, sorted(first.addresses)) == ("gpu-3", ["10.2.0.4"])
    assert (second.host, sorted(second.addresses)) == ("gpu-4", ["10.9.92.59"])
    assert second.findings[0].peers == ("10.9.91.63", "10.9.91.64")


def test_every_rank_that_a_barrier_misses_is_kept() -> None:
    """Recorded with torch 2.13, wait_all_ranks=True."""
    text = (
        "[rank0]:[E1125 09:46:44.892112681 ProcessGroupGloo.cpp:2901] [Rank 0]: Rank 2 failed to pass monitoredBarrier in 3000 ms\n"
        "[rank0]:[E1125 09:46:44.892177438 ProcessGroupGloo.cpp:2901] [Rank 0]: Rank 3 failed to pass monitoredBarrier in 3000 ms\n"
        "[rank0]:[E1125 09:46:44.892186221 ProcessGroupGloo.cpp:67] [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 3000 ms\n"
    )
    (stream,) = training_log.read(text, None)
    assert {rank for finding in stream.findings for rank in finding.ranks} == {2, 3}


def test_every_path_that_fails_is_kept_though_the_first_error_counts() -> None:
    line = "a:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.{n}<4> with error 12, opcode 0\n"
    (stream,) = training_log.read("".join(line.format(n=n) for n in (7, 8, 9)), None)
    assert [finding.peers for finding in stream.findings] == [("10.0.0.7",), ("10.0.0.8",), ("10.0.0.9",)]
