"""Stacks of many ranks in one text, and stacks that were pasted: the debug server's page, merged listings, issue threads."""

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.stacks import stack_text
from hangdog_models.reading.stacks.pasted import plain
from hangdog_models.training import training_thread
from support.refused import refused

DUMP = """Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 1030 in _bootstrap

Thread 0x00007f0000000002 (most recent call first):
  File "/srv/train.py", line 3 in {function}
  File "/srv/train.py", line 9 in <module>
"""
PYSPY = """Process {pid}: python train.py
Python v3.12.3 (/usr/bin/python3.12)

Thread {pid} (idle): "MainThread"
    {function} (train.py:3)
    <module> (train.py:9)
"""
GDB = """Thread 2 (Thread 0x7f1 (LWP {tid}) "cuda-EvtHandlr"):
#0  0x00007f326ef0b99f in poll () from /lib/libc.so.6

Thread 1 (Thread 0x7f0 (LWP {pid}) "python"):
#0  0x00007f326f3d9740 in {function} (x=1) at proxy.cc:713
#1  0x00007f326ef18133 in _start ()
"""
FRAMES = """  <module> (train.py:9)
  train (train.py:5)
  {function} (torch/distributed/distributed_c10d.py:2500)
"""


def told(text: str) -> dict[tuple[int, ...], str]:
    """By ranks: the innermost function of the thread that trains."""
    assert stack_text.form_of(text)
    found: dict[tuple[int, ...], str] = {}
    for process in stack_text.read(text):
        thread = training_thread(process.threads, process.pid)
        assert thread is not None
        found[process.ranks] = thread.frames[-1].function
    return found


@pytest.mark.parametrize(
    "body", [DUMP, PYSPY, PYSPY.replace("Thread {pid}", "Thread"), GDB, FRAMES, '  File "/srv/train.py", line 9, in <module>\n    f()\n  File "a.py", line 3, in {function}\n'],
    ids=["faulthandler", "py-spy", "py-spy without ids", "gdb", "frames", "a stack as Python prints it"],
)  # fmt: skip
@pytest.mark.parametrize(
    "header",
    [
        "=== Rank {}: http://gpu-a:41234/handler/dump_traceback? ===", "rank {}:", "Rank {}", "[rank {}]", "## rank {}",
        "========rank{}=================", "--- Rank {} (pid 71) ---", "rank={} on gpu-a", "global rank {}",
    ],
)  # fmt: skip
def test_each_rank_below_a_header_of_its_own(header: str, body: str) -> None:
    parts = [
        f"{header.format(rank)}\n{body.format(function=f'f{rank}', pid=70 + rank, tid=90 + rank)}\n"
        for rank in range(3)
    ]
    assert told("".join(parts)) == {(rank,): f"f{rank}" for rank in range(3)}


@pytest.mark.parametrize(
    ("header", "ranks"),
    [
        ("3 ranks: [0-1, 3]", (0, 1, 3)),
        ("16 ranks: [0-15]", tuple(range(16))),
        ("ranks 0-6:", tuple(range(7))),
        ("Ranks [0, 1, 3] (3 ranks):", (0, 1, 3)),
        ("Stack of ranks 0-2,5:", (0, 1, 2, 5)),
        ("Cluster 1 (2 ranks: 4-5)", (4, 5)),
        ("7 ranks (0-6):", tuple(range(7))),
        ("[0-1,3] (3 processes)", (0, 1, 3)),
    ],
)
def test_a_merged_listing_is_of_all_the_ranks_it_names(header: str, ranks: tuple[int, ...]) -> None:
    assert told(f"{header}\n{FRAMES.format(function='f')}") == {ranks: "f"}


def test_branches_of_a_tree_have_the_frames_above_them() -> None:
    text = """-----------------
[0-3] (4 processes)
-----------------
main() at train.c:44
  train() at train.c:28
    -----------------
    [0-1,3] (3 processes)
    -----------------
    PMPI_Allreduce() at ?:?
    -----------------
    [2] (1 processes)
    -----------------
    read_shard() at io.c:3
      __libc_read() at ?:?
"""
    found = {
        process.ranks: [frame.function for frame in process.threads[0].frames] for process in stack_text.read(text)
    }
    assert found == {
        (0, 1, 3): ["main", "train", "PMPI_Allreduce"],
        (2,): ["main", "train", "read_shard", "__libc_read"],
    }


@pytest.mark.parametrize(
    ("frames", "functions"),
    [
        ("f (a.py:1)\ng (a.py:2)\n<module> (a.py:3)", ["<module>", "g", "f"]),
        ("#0  0x01 in f () at a.c:3\n#1  0x02 in main () at a.c:4", ["main", "f"]),
        ('File "/srv/a.py", line 3 in f\nFile "/srv/a.py", line 4 in g', ["g", "f"]),
        ('File "/srv/a.py", line 3, in f\n  f()\nFile "/srv/a.py", line 4, in g', ["f", "g"]),
        ("|- f (a.py:1)\n|  |- g (a.py:2)", ["f", "g"]),
        ("a.py:3 in f\na.py:4 in <module>", ["<module>", "f"]),
        ("most recent call first\nf (a.py:1)\ng (a.py:2)", ["g", "f"]),
    ],
)
def test_the_order_of_frames_is_told_by_where_programs_begin_or_by_the_notation(
    frames: str, functions: list[str]
) -> None:
    (process,) = stack_text.read(f"rank 3:\n{frames}\n")
    assert [frame.function for frame in process.threads[0].frames] == functions


def test_a_listing_of_the_ranks_of_one_machine_is_none_of_the_job_s() -> None:
    assert stack_text.form_of(f"local rank 3:\n{FRAMES.format(function='f')}") == ""


def test_a_header_without_a_stack_below_it_and_an_exception_are_no_stacks() -> None:
    assert stack_text.form_of("rank 3:\nloss 1.2\nrank 4:\nloss 1.3\n") == ""
    raised = 'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in f\nValueError: x\n'
    assert stack_text.form_of(f"rank 3:\n{raised}") == ""


def test_the_machine_stands_in_the_address_of_the_debug_server() -> None:
    text = f"=== Rank 3: http://gpu-a17.site:41234/handler/dump_traceback? ===\n{DUMP.format(function='f')}"
    (process,) = stack_text.read(text)
    assert process.host == "gpu-a17.site"
    (itself,) = stack_text.read(text.replace("gpu-a17.site", "localhost"))
    assert itself.host == ""


def test_a_page_of_the_debug_server() -> None:
    page = "<!doctype html>\n<head><title>Stacks</title></head>\n<section>\n" + "".join(
        f"<h2>Rank {rank}: http://gpu-a:41/handler/dump_traceback?</h2>\n        <pre>{DUMP.format(function=f'f{rank}')}</pre>\n"
        for rank in range(2)
    )
    assert told(page) == {(0,): "f0", (1,): "f1"}
    assert told(page.replace("<module>", "&lt;module&gt;")) == {(0,): "f0", (1,): "f1"}


def test_an_issue_with_fences_quotes_and_indentation() -> None:
    text = "Hello, it hangs:\n\n" + "".join(
        f"- rank {rank}\n\n  ```text\n" + "".join(f"  {line}\n" for line in PYSPY.format(function=f"f{rank}", pid=rank + 7).splitlines())
        + "  ```\n"
        for rank in range(2)
    )  # fmt: skip
    assert told(text) == {(0,): "f0", (1,): "f1"}
    quoted = "".join(f"> {line}\r\n" for line in text.splitlines())
    assert told(quoted) == {(0,): "f0", (1,): "f1"}
    assert told("".join(f">> {line}\n" for line in text.splitlines())) == {(0,): "f0", (1,): "f1"}


def test_an_indented_paste_of_one_tool() -> None:
    for text in (PYSPY.format(function="f", pid=7), GDB.format(function="f", pid=7, tid=8)):
        pasted = "".join(f"        {line}\n" for line in text.splitlines())
        assert told(pasted) == {(): "f"}


def test_nothing_is_taken_off_a_text_that_nothing_stands_around() -> None:
    for text in (PYSPY, GDB, DUMP, FRAMES.lstrip()):
        assert plain(text) == text


def test_frames_alone_in_a_text_with_hardly_a_word_around_them() -> None:
    python = "Most of them stand here:\n\n```\n    put (store.py:3)\n    save (t.py:5)\n    train (t.py:7)\n    main (t.py:9)\n```\n"
    assert told(python) == {(): "put"}
    native = "    pthread_cond_wait@@GLIBC_2.3.2 (libc.so.6)\n    net::Future::wait (libnet.so)\n    net::f(long)::{lambda()#1}::_M_invoke (libnet.so)\n"
    assert told(native) == {(): "pthread_cond_wait@@GLIBC_2.3.2"}
    (process,) = stack_text.read(native)
    assert process.native


@pytest.mark.parametrize(
    "text",
    [
        "    put (store.py:3)\n    save (t.py:5)\n",
        "    put (store.py:3)\n    save (t.py:5)\n    train (t.py:7)\n" + "step 3 done (0.1 s)\n",
        "numpy (2.1)\ntorch (2.9)\nnccl (2.27)\n",
        'File "a.py", line 3, in f\nFile "a.py", line 4, in g\nFile "a.py", line 5, in h\n',
    ],
    ids=["two frames", "another line in four", "versions", "half a traceback"],
)
def test_a_text_that_is_not_nearly_all_frames_is_no_stack(text: str) -> None:
    assert stack_text.form_of(text) == ""


def test_what_people_write_behind_a_frame_in_a_listing_is_none_of_it() -> None:
    listing = (
        '=== Rank 0 ===\n  File "t.py", line 8 in main    \u2190 all_reduce (waiting)\n\n=== Rank 1 ===\n'
        "  put (store.py:3)  # sleeps (!)\n  main (t.py:9)\n=== Rank 2 ===\n"
        'Thread 0x0f (most recent call first):\n  File "t.py", line 8 in save  <- here\n  File "t.py", line 9 in <module>\n'
    )
    assert told(listing) == {(0,): "main", (1,): "put", (2,): "save"}


@pytest.mark.parametrize(
    ("limits", "limit"), [(Limits(files=3), "limit files"), (Limits(frames=1), "limit frames"), (Limits(values=1), "limit values")]
)  # fmt: skip
def test_every_limit_is_named_when_it_is_reached(limits: Limits, limit: str) -> None:
    text = "[0-3] (4 processes)\nmain() at a.c:1\n  f() at a.c:2\n    [0] (1 processes)\n    g() at a.c:3\n"
    with refused("too-many", UnreadableEvidence, limit):
        stack_text.read(text, limits)
