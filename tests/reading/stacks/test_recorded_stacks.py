"""What the tools themselves printed of small programs and of a job of four ranks that hangs (recorded/).

The Pythons are CPython 3.9 to 3.13, the job is torch 2.13 with gloo, the tools are gdb 13.1, elfutils 0.188, perf 6.1,
py-spy 0.4 and pystack 1.7. Ray is 2.60. Only folders that installations differ in were renamed.
"""

from pathlib import Path

import pytest

from hangdog_models.reading.stacks import (
    eu_stack,
    faulthandler,
    interrupted,
    kernel_stack,
    perf_script,
    pyspy_raw,
    pyspy_text,
    pystack,
    stack_text,
)
from hangdog_models.reading.stacks.debuggers import gdb, gdb_python
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.stack import Frame, Thread
from hangdog_models.training import training_thread

RECORDED = Path(__file__).parent / "recorded"


def text(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def main_of(process: DumpedProcess) -> Thread:
    thread = training_thread(process.threads, process.pid)
    assert thread is not None
    return thread


def innermost(process: DumpedProcess) -> str:
    return main_of(process).frames[-1].function


@pytest.mark.parametrize(
    ("name", "threads", "function", "line"),
    [
        ("faulthandler-3.9-later.txt", 2, "train_step", 17),
        ("faulthandler-3.10-kill.txt", 3, "train_step", 25),
        ("faulthandler-3.11-one.txt", 1, "train_step", 32),
        ("faulthandler-3.12-later.txt", 2, "train_step", 17),
        ("faulthandler-3.12-deep.txt", 2, "down", 29),
        ("faulthandler-3.13-abort.txt", 3, "sleep_for_peer", 12),
        ("faulthandler-3.13-kill.txt", 2, "train_step", 25),
    ],
)
def test_the_main_thread_of_a_dump_of_faulthandler(name: str, threads: int, function: str, line: int) -> None:
    (process,) = faulthandler.read(text(name))
    assert len(process.threads) == threads
    assert main_of(process).frames[-1] == Frame(function, "/srv/train/stuck.py", line)
    assert [thread.name for thread in process.threads[:-1]] == ["unnamed"] * (threads - 1)


def test_the_thread_that_trains_is_not_the_main_one_in_the_first_version_of_ray_train() -> None:
    """A worker of Ray 2.60 with RAY_TRAIN_V2_ENABLED=0: its main thread waits for what the training function reports."""
    (process,) = pyspy_text.read(text("py-spy-ray-train-1.txt"))
    assert main_of(process).name == "Thread-1 (train_loop)"
    assert innermost(process) == "_engine_run_backward"


def test_a_timer_that_repeats_gives_one_look_of_each_process() -> None:
    processes = {process.local: process for process in faulthandler.read(text("torchrun-timer.log"))}
    assert set(processes) == {0, 1, 2, 3}
    assert [innermost(processes[local]) for local in range(4)] == [
        "all_reduce",
        "all_reduce",
        "read_shard",
        "all_reduce",
    ]
    assert main_of(processes[1]).frames[0] == Frame("<module>", "/srv/train/train.py", 44)
    assert main_of(processes[1]).frames[-1].file == "torch/distributed/distributed_c10d.py"


def test_the_thread_that_aborts_is_not_the_main_thread() -> None:
    (process,) = faulthandler.read(text("torchrun-abort.log"))
    assert (process.local, process.ranks) == (0, ())
    assert innermost(process) == "all_reduce"
    assert process.threads[0].frames[-1].function == "die"


def test_one_gdb_prints_native_and_python_stacks_of_the_same_process() -> None:
    native, python = stack_text.read(text("gdb-bt-and-py-bt.txt"))
    assert (native.native, python.native) == (True, False)
    assert native.pid == python.pid == main_of(python).tid == main_of(native).tid
    assert main_of(native).frames[-1].function == "__libc_recv"
    assert main_of(python).frames[-1] == Frame("wait_for_peer", "/srv/train/stuck2.py", 5)
    assert [len(thread.frames) for thread in python.threads] == [4, 6, 3]
    assert len(gdb.read(text("gdb-bt-and-py-bt.txt"))) == 1


def test_py_bt_alone_is_of_the_main_thread() -> None:
    (process,) = gdb_python.read(text("gdb-py-bt.txt"))
    assert [frame.function for frame in main_of(process).frames] == ["<module>", "train", "wait_for_peer"]
    assert process.pid == main_of(process).tid > 0
    assert "recv" not in repr(process.threads)  # source lines are not kept


def test_bt_alone_is_of_the_main_thread() -> None:
    (process,) = gdb.read(text("gdb-bt.txt"))
    frames = main_of(process).frames
    assert (frames[0].function, frames[-1].function) == ("_start", "__GI___clock_nanosleep")
    assert process.native and process.pid == main_of(process).tid


def test_eu_stack_names_threads_by_their_ids_and_frames_by_their_libraries() -> None:
    (process,) = eu_stack.read(text("eu-stack-verbose.txt"))
    assert [thread.tid for thread in process.threads] == [16995, 16997, 16998]
    main = main_of(process)
    assert main.tid == process.pid == 16995
    assert main.frames[-1] == Frame(
        "__libc_recv", "../sysdeps/unix/sysv/linux/recv.c", 28, "/usr/lib/x86_64-linux-gnu/libc.so.6"
    )
    assert process.threads[2].frames[-1].function == "??"
    assert all(frame.native for thread in process.threads for frame in thread.frames)


@pytest.mark.parametrize(("rank", "function"), [(0, "__futex_abstimed_wait_common"), (2, "read")])
def test_eu_stack_of_a_job(rank: int, function: str) -> None:
    (process,) = eu_stack.read(text(f"eu-stack/rank{rank}.txt"))
    assert innermost(process) == function


def test_kernel_stacks_of_one_thread_and_of_all() -> None:
    (alone,) = kernel_stack.read(text("kernel/rank2.txt"))
    assert (alone.pid, innermost(alone), main_of(alone).frames[-1].module) == (None, "anon_pipe_read", "kernel")
    (whole,) = kernel_stack.read(text("kernel-tasks.txt"))
    assert [thread.tid for thread in whole.threads] == [16995, 16997, 16998]
    assert innermost(whole) == "unix_stream_read_generic"


def test_perf_shows_each_thread_as_it_last_ran() -> None:
    (process,) = perf_script.read(text("perf-script.txt"))
    (thread,) = process.threads
    assert (thread.tid, thread.active, process.native) == (16998, True, True)
    (python,) = perf_script.read(text("perf-python.txt"))
    assert python.pid == main_of(python).tid
    assert main_of(python).frames[0] == Frame("step", "/srv/train/spin2.py")
    assert not python.native


@pytest.mark.parametrize("name", ["debug-server.txt", "debug-server.html"])
def test_the_debug_server_of_torch_shows_each_rank_and_its_machine(name: str) -> None:
    """What torch.distributed.debug of torch 2.13 dumped into a file, and its page: rank 1 sleeps, rank 0 waits for it."""
    processes = stack_text.read(text(name))
    assert [(process.ranks, process.host, innermost(process)) for process in processes] == [
        ((0,), "gpu-a", "all_reduce"),
        ((1,), "gpu-a", "read_shard"),
    ]


@pytest.mark.parametrize(
    ("name", "function", "first"), [("pystack.txt", "wait_for_peer", "<module>"), ("pystack-native.txt", "__futex_abstimed_wait_common64", "_start")]
)  # fmt: skip
def test_pystack_knows_the_main_thread_by_where_it_began(name: str, function: str, first: str) -> None:
    (process,) = pystack.read(text(name))
    main = main_of(process)
    assert (process.pid, main.tid, main.frames[0].function, innermost(process)) == (25172, 25172, first, function)
    assert "lock.acquire" not in repr(process.threads)  # source lines are not kept


def test_py_spy_record_counts_and_the_commonest_stack_is_kept() -> None:
    (process,) = pyspy_raw.read(text("py-spy-record-subprocesses.txt"))
    assert (process.pid, process.command) == (23595, "/usr/bin/python3.11 stuck2.py")
    assert innermost(process) == "wait_for_peer"
    assert {thread.name for thread in process.threads} == {"MainThread", "Thread-1 (pin_memory)", "Thread-2 (feed)"}
    (job,) = pyspy_raw.read(text("py-spy-record/rank2.txt"))
    assert main_of(job).frames[-1] == Frame("read_shard", "train.py", 18)


def test_the_ranks_of_a_job_that_somebody_interrupted() -> None:
    found = {process.ranks: main_of(process).frames for process in interrupted.read(text("torchrun-interrupted.log"))}
    assert {ranks: [frame.function for frame in frames] for ranks, frames in found.items()} == {
        (0,): ["<module>", "main", "wrapper", "barrier"],  # gloo let go of it when rank 1 had ended
        (1,): ["<module>", "main", "load"],
    }


def test_a_program_whose_loader_hangs_when_somebody_interrupts_it() -> None:
    (process,) = interrupted.read(text("loader-interrupted.log"))
    assert innermost(process) == "select" and len(main_of(process).frames) == 11


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("gdb-bt-and-py-bt.txt", "the text of gdb"),
        ("gdb-bt.txt", "the text of gdb"),
        ("gdb-py-bt.txt", "the text of gdb's py-bt"),
        ("pystack.txt", "the text of pystack"),
        ("pystack-native.txt", "the text of pystack"),
        ("eu-stack-verbose.txt", "the text of eu-stack"),
        ("eu-stack/rank0.txt", "the text of eu-stack"),
        ("kernel-tasks.txt", "/proc/<pid>/stack"),
        ("kernel/rank0.txt", "/proc/<pid>/stack"),
        ("perf-script.txt", "the text of perf script"),
        ("perf-python.txt", "the text of perf script"),
        ("py-spy-record-subprocesses.txt", "the lines of py-spy record"),
        ("py-spy-record-native.txt", "the lines of py-spy record"),
        ("debug-server.txt", "stacks of ranks"),
        ("debug-server.html", "stacks of ranks"),
        ("torchrun-interrupted.log", ""),
        ("torchrun-timer.log", ""),  # a log, whatever stands in it
        ("faulthandler-3.13-abort.txt", ""),
    ],
)
def test_a_form_is_recognised_by_what_stands_in_it(name: str, what: str) -> None:
    assert stack_text.form_of(text(name)) == what
