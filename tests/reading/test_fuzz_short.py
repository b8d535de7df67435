"""A short run of the fuzzer belongs to every test run; `make fuzz` is the long one. And work grows with the input only."""

import time
from contextlib import suppress

import pytest

from fuzzing.attempts import run
from fuzzing.damage import inputs
from fuzzing.readers import TARGETS
from fuzzing.seeds import SEEDS
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.collectives import nccl_diag, ras_text
from hangdog_models.reading.collectives.ras_json import repaired
from hangdog_models.reading.hardware import amd_smi, npu_smi
from hangdog_models.reading.logs import container_log, training_log
from hangdog_models.reading.stacks import faulthandler, interrupted, stack_text, thread_dump

#: Lines and pieces that a pattern could stumble over when they are repeated.
STUMBLING = [
    "WorkNCCL(", "[PG ", "[PG ID 1 PG GUID ", "[1,", "Rank 1 is running collective: CollectiveFingerPrint(", "NCCL INFO comm ",
    "DataLoader worker (pid", "connect to ", "Connection closed by peer ", "NCCL error", "A.", "store based barrier ",
    'File "', ", line 1 in ", "Thread 0x", "(most recent call first):", "rank 1", "1-2,", " (a.py:1)", "> ", "[<0>] ", ";", " at ", ":1",
    "[rank", "gloo/transport ", "\x1b[", "(a pid=", "2026-01-02T", "Got completion from peer ", " ", ": ", "x=",
    "NCCL DIAG ", "a:1 NCCL DIAG [INFO] Xid 7 detected 1 times on host a", "rank(s) {1,", "GPU[0] : ", "GPU: 0\n a:", "| 5 a | b ", "NPU ID : 1\n",
    "mpirun noticed that process rank 1 with PID 2 on node ", "  Process name: [[1,1],", "failed (exitcode: 1) local_rank: ",
    " launch.py:1:f] exits with return code = -", "The actor died", "GLOBAL_RANK: 1, MEMBER: ", "Call to recv from a", " message: a My EFA addr: a Peer EFA addr: ",
    "[1] NCCL WARN Failed to bind NVLink SHARP ", "RuntimeError: ranks timed out a did not ", "hccl fftsplus task timeout occurred, ", "[1] ", "This thread has been waiting for `",
    '{"log":"a","stream":', "2026-01-02T03:04:05Z stdout P ", "U D ",
    "Traceback (most recent call last):", "KeyboardInterrupt", "KeyboardInterrupt\nDuring handling of the above exception, another\n",
    "^C", "A.Error", 'Traceback (most recent call last):\n  File "a", line 1, in f\nKeyboardInterrupt\nDuring handling of the above exception, another\n',
    "#0  f (", "(gdb) ", ")  <- ", "[Switching to thread 2 (LWP 3)]\n",
    "~~ Stack of ", "~~ Stack of a (1234) ~", "# Thread: a(", "Stack for <Task pending name='a' ", "Thread 1234 (", "Thread a (1234", 'File "a", line 1, in f', "* thread #1, name = '",
    "frame #0: 0x1 a`f(", " [inlined] ", "frame #0: 0x1 a` at ", "(a=",
]  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_evidence_is_read_or_refused(name: str) -> None:
    run(name, 300, seed=1)


def test_the_fuzzer_tells_a_failing_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: bytes) -> object:
        raise IndexError(data)

    monkeypatch.setitem(TARGETS, "ras", fails)
    with pytest.raises(AssertionError, match="ras fails at b'"):
        run("ras", 1)


def test_equal_seeds_give_equal_inputs() -> None:
    first, second = (zip(range(50), inputs("log", 3), strict=False) for _ in range(2))
    assert list(first) == list(second)


@pytest.mark.slow
@pytest.mark.parallel
@pytest.mark.parametrize("piece", STUMBLING)
@pytest.mark.parametrize("ending", ["", "\n"])
def test_repeated_pieces_take_no_longer_than_a_second_a_megabyte(piece: str, ending: str) -> None:
    text = (piece * (4000 // len(piece)) + ending) * 50  # 0.2 MB
    begin = time.process_time()
    training_log.read(text, None)
    repaired(text)
    if ras_text.recognises(text):
        ras_text.read(text)
    faulthandler.read(text)
    interrupted.read(text)
    thread_dump.recognises(text)
    thread_dump.read("Thread 0x1\n" + text)
    for tolerant in (nccl_diag.read, container_log.joined):
        tolerant(text)
    for strict in (amd_smi.read, npu_smi.read):
        with suppress(UnreadableEvidence):
            strict(text)
    for form in stack_text.FORMS:
        form.recognises(text)
    stack_text.form_of("ranks 1\n#0  0x01 in f ()\n" + text[: 1 << 15])
    assert time.process_time() - begin < 2  # measured: 0.05 s of CPU


def test_reading_grows_with_the_log_and_not_with_its_square() -> None:
    def seconds(copies: int) -> float:
        text = (SEEDS["log"][0] if isinstance(SEEDS["log"][0], str) else "") * copies
        begin = time.process_time()
        training_log.read(text, None)
        return time.process_time() - begin

    seconds(10)
    assert seconds(400) < 4 * 10 * max(seconds(40), 0.01)
