"""Laws of every reader: whatever it is given, it answers or raises UnreadableEvidence, and what it keeps can be shown."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.ranks import Rank
from hangdog_models.reading import job
from hangdog_models.reading.collectives import flight_recorder, inspector, nccl_diag, ras_events, ras_json, ras_text
from hangdog_models.reading.hardware import amd_smi, npu_smi
from hangdog_models.reading.json_document import looks_like_json, read_json
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.logs import container_log, kubernetes_json, training_log
from hangdog_models.reading.stacks import (
    capture_failure,
    eu_stack,
    faulthandler,
    interrupted,
    kernel_stack,
    perf_script,
    proc_status,
    pyspy,
    pyspy_raw,
    pyspy_text,
    pystack,
    stack_text,
    thread_dump,
)
from hangdog_models.reading.stacks.debuggers import gdb, gdb_python, lldb
from hangdog_models.reading.stacks.dumped_process import DumpedProcess

#: Small, so that the examples reach them.
LIMITS = Limits(depth=4, values=200, threads=3, frames=4, text=20)

KEYS = st.sampled_from(
    [
        "pid", "state", "frames", "name", "filename", "short_filename", "module", "line", "thread_name",
        "os_thread_id", "active", "owns_gil", "entries", "pg_config", "pg_status", "process_group",
        "collective_seq_id", "input_sizes", "input_dtypes", "retired", "is_p2p", "ranks",
        "last_enqueued_collective",
    ]
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["[0, 1]", "S", "7"]),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inside, max_size=6),
    max_leaves=30,
)
FRAMES = st.fixed_dictionaries(
    {"name": st.text() | VALUES}, optional={"line": VALUES, "filename": VALUES, "module": VALUES}
)
THREADS = st.fixed_dictionaries(
    {"frames": st.lists(FRAMES, max_size=6) | VALUES},
    optional={"pid": VALUES, "os_thread_id": VALUES, "thread_name": VALUES, "active": VALUES},
)
ENTRIES = st.dictionaries(KEYS, VALUES, max_size=8)
DOCUMENTS = (
    VALUES
    | st.lists(THREADS, max_size=5)
    | st.fixed_dictionaries({"entries": st.lists(ENTRIES, max_size=5), "pg_config": VALUES, "pg_status": VALUES})
    | st.fixed_dictionaries({"pid": VALUES, "state": VALUES, "cpu_s": VALUES, "comm": VALUES})
)

#: Pieces of the tools' texts, in any order and with anything between.
LINES = st.sampled_from(
    [
        "Process 12: python train.py", 'Thread 12 (active+gil): "MainThread"', "Thread 0xAB (idle)", "    f (a.py:3)",
        "        Locals:", "            x (y:3)", "    g (libc.so.6)", "    h ()", "Traceback for thread 12 (python) [Has the GIL] ()",
        '    (Python) File "a.py", line 3, in f', '    (C) File "???", line 0, in ??? (/lib/libc.so)', "        source()",
        "Thread 2 (Thread 0x7f (LWP 9)):", "Thread 1 (LWP 12):", "#0  0x01 in read () at a.c:3", "#1  f (x=1) from /lib/a.so",
        "    wrapped) at b.c:4", "Name:\tpython", "State:\tS (sleeping)", "Pid:\t12", "#0-0 (ab) MISMATCH",
        "Current thread 0x0f (most recent call first):", '  File "a.py", line 3 in f', "[rank3]:Thread 0x0f [x] (most recent call first):",
        "Traceback (most recent call first):", "PID 12 - process", "TID 12:", "#0  0x01 - 1 read - /lib/a.so", "    a.c:3:4",
        "[<0>] nfs_wait+0x1/0x2 [nfs]", "== /proc/12/task/13 ==", "python 12/13 1.5: 5 cycles: ", "\t5e py::f:a.py+0x1 (x)",
        "<module> (a.py:3);f (a.py:4) 12", "rank 3:", "16 ranks: [0-15]", "[0-1] (2 processes)", "> ```", "<pre>", "...",
        "  Rank 3 -- GPU 1 managed by process 7 on node a", "[rank3]: CUDA error: x", "[PG 1 Rank 2] last enqueued work: 3", "Error: Failed to get process", "",
        "a:1 NCCL DIAG [INFO] Xid 79 detected 1 time on host b. See", "GPU: 0", "    ECC:", "        TOTAL_UNCORRECTABLE_COUNT: 3",
        "| 5     910B2C | Alarm  | 97.2", "NPU ID : 3", "2026-01-02T03:04:05Z stderr P x",
    ]
)  # fmt: skip
TEXTS = st.lists(LINES | st.text(max_size=30), max_size=30).map("\n".join) | st.text()

DOCUMENT_READERS: list[Callable[[Any], object]] = [
    lambda document: pyspy.read(document, LIMITS),
    lambda document: proc_status.read(document, LIMITS),
    lambda document: flight_recorder.read(document, Rank(3), LIMITS),
    lambda document: flight_recorder.read(document, None, LIMITS),
    lambda document: ras_json.read(document, LIMITS),
    lambda document: amd_smi.read_document(document, LIMITS),
    lambda document: kubernetes_json.read(document, LIMITS),
]
TEXT_READERS: list[Callable[[str], object]] = [
    lambda text: pyspy.threads_from_json(text, LIMITS),
    lambda text: read_json(text, LIMITS),
    lambda text: pyspy_text.read(text, LIMITS),
    lambda text: pystack.read(text, LIMITS),
    lambda text: gdb.read(text, LIMITS),
    lambda text: gdb_python.read(text, LIMITS),
    lambda text: lldb.read(text, LIMITS),
    lambda text: thread_dump.read(text, None, LIMITS),
    lambda text: eu_stack.read(text, LIMITS),
    lambda text: kernel_stack.read(text, LIMITS),
    lambda text: perf_script.read(text, LIMITS),
    lambda text: pyspy_raw.read(text, LIMITS),
    lambda text: faulthandler.read(text, None, LIMITS),
    lambda text: interrupted.read(text, None, LIMITS),
    lambda text: stack_text.read(text, LIMITS),
    lambda text: proc_status.read_status(text, LIMITS),
    lambda text: ras_text.read(text, LIMITS),
    lambda text: ras_events.read(text, LIMITS),
    lambda text: training_log.read(text, None, LIMITS),
    lambda text: ras_json.repaired(text),
    lambda text: nccl_diag.read(text, LIMITS),
    lambda text: inspector.read(text, LIMITS),
    lambda text: amd_smi.read(text, LIMITS),
    lambda text: npu_smi.read(text, LIMITS),
    lambda text: container_log.plain(container_log.joined(text, LIMITS)),
]


@given(document=DOCUMENTS)
def test_a_document_is_read_or_refused(document: object) -> None:
    """By each reader; what is made up costs more than what they do with it, so all of them get the same."""
    for read in DOCUMENT_READERS:
        try:
            json.dumps(repr(read(document))).encode()
        except UnreadableEvidence as error:
            assert str(error)


@given(text=TEXTS)
def test_a_text_is_read_or_refused(text: str) -> None:
    for read in TEXT_READERS:
        try:
            read(text)
        except UnreadableEvidence as error:
            assert str(error)


@given(TEXTS)
def test_recognising_never_fails(text: str) -> None:
    for recognises in (
        *(form.recognises for form in stack_text.FORMS), faulthandler.recognises, thread_dump.recognises, proc_status.recognises_status, capture_failure.recognises, looks_like_json,
    ):  # fmt: skip
        assert recognises(text) in (True, False)
    assert capture_failure.read(text).message.isprintable()


@given(DOCUMENTS)
def test_what_is_recognised_is_told_apart(document: object) -> None:
    readers = (pyspy.recognises, proc_status.recognises, flight_recorder.recognises)
    assert sum(recognises(document) for recognises in readers) <= 2


@given(st.one_of(TEXTS, st.lists(st.sampled_from(["[job]", "[topology]", "tp = 2", "tp = 'x'", "order = 'tp'", "[machines]", "a = '0-3'"]))
                 .map("\n".join)))  # fmt: skip
def test_a_declaration_is_read_or_refused(text: str) -> None:
    for read in (job.read_job, job.read_sizes, job.read_interval):
        try:
            read(text)
        except (UnreadableEvidence, WrongUse) as error:
            assert str(error)


@given(DOCUMENTS, TEXTS)
def test_what_stack_readers_keep_is_bounded_and_can_be_shown(document: object, text: str) -> None:
    for process in _processes(document, text):
        assert len(process.threads) <= LIMITS.threads
        for thread in process.threads:
            assert len(thread.frames) <= LIMITS.frames
            for frame in thread.frames:
                # An escape is longer than what it stands for: `\U0010ffff` for one character.
                assert frame.function.isprintable() and len(frame.function) <= 10 * LIMITS.text
                assert frame.file.isprintable() and frame.line >= 0


def _processes(document: object, text: str) -> Iterator[DumpedProcess]:
    attempts: list[Callable[[], tuple[DumpedProcess, ...]]] = [
        lambda: pyspy.read(document, LIMITS),
        lambda: pyspy_text.read(text, LIMITS),
        lambda: pystack.read(text, LIMITS),
        lambda: gdb.read(text, LIMITS),
        lambda: gdb_python.read(text, LIMITS),
        lambda: lldb.read(text, LIMITS),
        lambda: thread_dump.read(text, None, LIMITS),
        lambda: eu_stack.read(text, LIMITS),
        lambda: kernel_stack.read(text, LIMITS),
        lambda: perf_script.read(text, LIMITS),
        lambda: pyspy_raw.read(text, LIMITS),
        lambda: faulthandler.read(text, None, LIMITS),
        lambda: interrupted.read(text, None, LIMITS),
        lambda: stack_text.read(text, LIMITS),
    ]
    for attempt in attempts:
        try:
            yield from attempt()
        except UnreadableEvidence:
            continue
