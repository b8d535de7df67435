"""Dumps of faulthandler in logs: whose a line is, dumps that are mixed, repeated or cut, and which thread is the main one."""

import pytest

from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.line_owner import NOBODY, LineOwner, owner_of
from hangdog_models.reading.stacks import faulthandler
from hangdog_models.reading.stacks.dumped_process import MAIN, DumpedProcess
from hangdog_models.stack import Thread

HELPER = """Thread 0x00007f000000{tid:04x} (most recent call first):
  File "/usr/lib/python3.12/queue.py", line 171 in get
  File "/usr/lib/python3.12/threading.py", line 1030 in _bootstrap
"""
MAIN_THREAD = """{header} 0x00007f00000f{tid:04x} (most recent call first):
  File "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 2501 in {function}
  File "/srv/train.py", line {line} in <module>
"""


def dump(function: str = "all_reduce", tid: int = 1, line: int = 7, header: str = "Thread") -> str:
    return HELPER.format(tid=tid) + "\n" + MAIN_THREAD.format(header=header, tid=tid, function=function, line=line)


def prefixed(prefix: str, text: str) -> list[str]:
    return [prefix + line for line in text.splitlines()]


def main_of(process: DumpedProcess) -> Thread | None:
    return next((thread for thread in process.threads if thread.name == MAIN), None)


def told(text: str, rank: int | None = None) -> dict[object, str | None]:
    """By rank, by rank on the machine or by process: the innermost function of the main thread."""
    found: dict[object, str | None] = {}
    for process in faulthandler.read(text, None if rank is None else Rank(rank)):
        main = main_of(process)
        key = process.ranks or process.local or process.pid
        found[key] = main.frames[-1].function if main else None
    return found


@pytest.mark.parametrize(
    ("prefix", "owner"),
    [
        ("", NOBODY),
        ("   ", NOBODY),
        ("[rank3]:", LineOwner(Rank(3))),
        ("[rank3]: ", LineOwner(Rank(3))),
        ("2026-01-02T03:04:05.123456789Z [rank12]:", LineOwner(Rank(12))),
        ("[rank: 3] ", LineOwner(Rank(3))),
        ("rank=3 | ", LineOwner(Rank(3))),
        ("[2026-01-02 03:04:05,678][train][Rank 17] ", LineOwner(Rank(17))),
        ("[pod/llama-worker-2/pytorch] [rank19]: ", LineOwner(Rank(19))),
        ("3: ", LineOwner(Rank(3), task=True)),
        (" 3: ", LineOwner(Rank(3), task=True)),
        ("17: [rank3]:", LineOwner(Rank(3))),
        ("[1,3]<stderr>:", LineOwner(Rank(3))),
        ("[prterun-gpu-a-17@1,3]<stderr>: ", LineOwner(Rank(3))),
        ("[default3]:", LineOwner(local=3, text="[default3]:")),
        ("[gpu-a17:3]:", LineOwner(local=3, text="[gpu-a17:3]:")),
        ("2: [default3]:", LineOwner(local=3, text="2: [default3]:")),
        ("[local_rank 3] ", LineOwner(local=3, text="[local_rank 3]")),
        ("(RayTrainWorker pid=71, ip=10.0.0.1) ", LineOwner(process=71, text="(RayTrainWorker pid=71, ip=10.0.0.1)")),
        ("gpu-a17: ", LineOwner(text="gpu-a17:")),
        ("[gpu17]: ", LineOwner(text="[gpu17]:")),
        ("node-rank 3: ", LineOwner(text="node-rank 3:")),
        ("2026-01-02T03:04:05.123Z stderr F ", LineOwner(text="stderr F")),
        (" 50%|##   | 3/6 [00:01<00:01]\r[rank1]: ", LineOwner(Rank(1))),
        ("[rank9999999]:", LineOwner(text="[rank9999999]:")),
    ],
)  # fmt: skip
def test_whose_a_line_is(prefix: str, owner: LineOwner) -> None:
    assert owner_of(prefix) == owner


@pytest.mark.parametrize("prefix", ["[rank{}]:", "{}: ", "[1,{}]<stderr>:", "2026-01-02 03:04:0{0}.5 [rank: {0}] "])
def test_dumps_whose_lines_are_mixed_are_kept_apart(prefix: str) -> None:
    texts = [prefixed(prefix.format(rank), dump(f"f{rank}", rank + 1)) for rank in range(4)]
    mixed = "\n".join(line for lines in zip(*texts, strict=True) for line in lines)
    assert told(mixed) == {(rank,): f"f{rank}" for rank in range(4)}


def test_ranks_on_a_machine_and_processes_are_told_as_such() -> None:
    lines = prefixed("[default1]:", dump("f", 1)) + prefixed("(W pid=71) ", dump("g", 2))
    assert told("\n".join(lines)) == {1: "f", 71: "g"}


def test_lines_of_the_file_s_own_rank_are_of_one_process_with_or_without_a_prefix() -> None:
    text = "loading\n" + dump("f") + "\n".join(prefixed("[rank3]:", dump("g")))
    (process,) = faulthandler.read(text, Rank(3))
    main = main_of(process)
    assert process.ranks == () and main is not None and main.frames[-1].function == "g"


def test_a_rank_in_the_line_counts_more_than_the_file_s() -> None:
    assert told("\n".join(prefixed("[rank5]:", dump("f"))), rank=3) == {(5,): "f"}


@pytest.mark.parametrize(
    "begin", ["Fatal Python error: Aborted\n\n", "Timeout (0:00:05)!\n", "Timeout (1:00:05.500000)!\n", ""]
)
def test_of_several_dumps_the_last_counts(begin: str) -> None:
    assert told(begin + dump("f") + "\nstep 3 loss 1.2\n" + begin + dump("g")) == {None: "g"}


def test_a_dump_that_was_cut_short_yields_to_the_one_before() -> None:
    assert told("Timeout (0:00:05)!\n" + dump("f") + "Timeout (0:00:05)!\n" + HELPER.format(tid=1)) == {None: "f"}


def test_the_current_thread_is_not_the_main_one_where_a_helper_dumps() -> None:
    text = dump("f").replace("Thread", "Current thread", 1)
    (process,) = faulthandler.read(text)
    assert [thread.name for thread in process.threads] == ["unnamed", MAIN]


def test_names_of_threads_are_kept_but_the_main_one_s() -> None:
    text = dump("f").replace(" (most", " [pt_main_thread] (most")
    (process,) = faulthandler.read(text)
    assert [thread.name for thread in process.threads] == ["pt_main_thread", MAIN]


def test_of_a_process_with_more_threads_than_are_printed_the_last_is_none() -> None:
    many = "\n".join(HELPER.format(tid=tid) for tid in range(100))
    (process,) = faulthandler.read(many + "\n...\n")
    assert len(process.threads) == 100 and main_of(process) is None


def test_a_thread_of_a_library_that_is_printed_last_in_such_a_dump_is_none_either() -> None:
    text = 'Thread 0x0f (most recent call first):\n  File "/torch/autograd/function.py", line 3 in apply\n\n...\n'
    (process,) = faulthandler.read(text)
    assert main_of(process) is None


def test_the_current_thread_alone_is_the_main_one_only_if_it_runs_a_module() -> None:
    alone = 'Stack (most recent call first):\n  File "/srv/a.py", line 3 in f\n'
    assert told("<Cannot show all threads while the GIL is disabled>\n" + alone) == {None: None}
    assert told(alone + '  File "/srv/a.py", line 9 in <module>\n') == {None: "f"}


def test_lines_of_two_processes_that_nothing_keeps_apart_give_no_main_thread() -> None:
    first, second = dump("f", 1).split("\n\n"), dump("g", 2).split("\n\n")
    assert told("\n".join([first[0], second[0], first[1], second[1]])) == {None: None}


def test_a_slurm_task_that_launches_several_ranks_is_no_rank() -> None:
    text = "\n".join(prefixed("0: ", dump("f", 1)) + prefixed("0: ", dump("g", 2)))
    (process,) = faulthandler.read(text)
    assert process.ranks == ()


def test_a_loader_s_worker_in_the_same_file_is_not_the_rank() -> None:
    worker = (
        dump("f", 2)
        .replace("/srv/train.py", "/opt/site-packages/torch/utils/data/_utils/worker.py")
        .replace("line 7 in <module>", 'line 7 in _worker_loop\n  File "/srv/train.py", line 7 in <module>')
    )
    text = "Fatal Python error: Aborted\n\n" + dump("trains") + "Fatal Python error: Bus error\n\n" + worker
    assert told(text) == {None: "trains"}
    assert faulthandler.read(worker) == ()


def test_a_collection_of_garbage_and_threads_without_frames() -> None:
    text = (
        "Thread 0x01 (most recent call first):\n  <no Python frame>\n\n"
        "Current thread 0x02 (most recent call first):\n  Garbage-collecting\n"
        '  File "/srv/a.py", line 3 in <module>\n\nExtension modules: a, b (total: 2)\n'
    )
    (process,) = faulthandler.read(text)
    assert [[frame.function for frame in thread.frames] for thread in process.threads] == [
        [], ["<module>", "gc_collect_main"],
    ]  # fmt: skip


def test_the_stack_in_c_that_cpython_adds_since_3_14_is_passed_over() -> None:
    text = dump("f") + (
        "\nCurrent thread's C stack trace (most recent call first):\n"
        '  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x30 [0x4b53b0]\n  <truncated rest of calls>\n'
    )
    (process,) = faulthandler.read(text)
    assert [len(thread.frames) for thread in process.threads] == [2, 2]


def test_tracebacks_of_exceptions_and_stacks_of_c_are_no_dumps() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in f\nValueError: x\n'
        "Exception raised from checkTimeout at a.cpp:3 (most recent call first):\nframe #0: f + 0x1 (0x2 in /lib/a.so)\n"
    )
    assert not faulthandler.recognises(text)
    assert faulthandler.read(text) == ()


def test_what_is_past_a_limit_is_passed_over() -> None:
    (process,) = faulthandler.read(dump("f"), None, Limits(threads=1, frames=1, text=5))
    assert [len(thread.frames) for thread in process.threads] == [1]
    assert main_of(process) is None


def test_windows_line_ends_and_colours() -> None:
    text = "\x1b[31m" + dump("f").replace("\n", "\x1b[0m\r\n")
    assert told(text) == {None: "f"}


def test_the_last_thread_is_the_main_one_where_a_thread_of_a_library_runs_python_and_the_main_stack_is_deep() -> None:
    backward = (
        'Thread 0x0f (most recent call first):\n  File "/site-packages/torch/autograd/function.py", line 3 in apply\n'
    )
    deep = "Thread 0x0e (most recent call first):\n" + '  File "/srv/a.py", line 3 in down\n' * 100 + "  ...\n"
    assert told(backward + "\n" + deep) == {None: "down"}
