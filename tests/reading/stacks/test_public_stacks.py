"""Stacks and states that others published: excerpts, shortened. tests/reading/SOURCES.md lists them beside those recorded here."""

import pytest

from hangdog_models.reading.stacks import faulthandler, kernel_stack, proc_status, pyspy_text, pystack, stack_text
from hangdog_models.reading.stacks.debuggers import gdb, gdb_python
from hangdog_models.stack import Frame

#: https://github.com/NVIDIA/TensorRT-LLM/issues/2560
NO_SYMBOLS = """Thread 4 (Thread 0x7fd09a759000 (LWP 3913167) "cuda00006000019"):
#0  0x00007fd0b01abac1 in poll () from /lib64/libc.so.6
#1  0x00007fd0b2867e4f in ?? () from /lib64/libcuda.so.1
#2  0x00007fd0b293b12f in ?? () from /lib64/libcuda.so.1
#3  0x00007fd0b28640f3 in ?? () from /lib64/libcuda.so.1
#4  0x00007fd0b0d861ca in start_thread () from /lib64/libpthread.so.0
#5  0x00007fd0b00b28d3 in clone () from /lib64/libc.so.6

Thread 3 (Thread 0x7fd0a658a000 (LWP 3913159) "executor_server"):
#0  0x00007fd0b01b8307 in epoll_wait () from /lib64/libc.so.6
#1  0x00007fd0aebcf509 in ?? () from /lib64/libevent_core-2.1.so.6
#2  0x00007fd0aebc51e8 in event_base_loop () from /lib64/libevent_core-2.1.so.6
"""
#: https://github.com/silx-kit/pyFAI/issues/2493: `bt` of one thread, whose frames gdb broke into lines
BROKEN_LINES = """Thread 1 (Thread 0x7f1675f0f740 (LWP 40600) "python"):
#0  __futex_abstimed_wait_common64
    (private=0, cancel=true, abstime=0x7ffd07547de0, op=137, expected=0, futex_word=0xa5d8d4 <_PyRuntime+436>)
    at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common
    (futex_word=futex_word@entry=0xa5d8d4 <_PyRuntime+436>, expected=expected@entry=0, clockid=clockid@entry=1, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007f1675aaff7b in __GI___futex_abstimed_wait_cancelable64
    (futex_word=futex_word@entry=0xa5d8d4 <_PyRuntime+436>, expected=expected@entry=0, clockid=clockid@entry=1)
    at ./nptl/futex-internal.c:139
#3  0x00000000004f9cc2 in PyCOND_TIMEDWAIT (us=<optimized out>, mut=<optimized out>, cond=0xa5d8a8 <_PyRuntime+392>)
    at ../Python/condvar.h:73
"""
#: https://github.com/zhuyifei1999/guppy3/issues/52: a frame whose line gdb does not find
LINE_UNKNOWN = """Traceback (most recent call first):
  File "python3.14t/traceback.py", line 672, in output_line
    caret_group = list(group)
  File "python3.14t/traceback.py", line ?, in format_frame_summary
    (failed to get frame line number)
  File "python3.14t/traceback.py", line 764, in format
    formatted_frame = self.format_frame_summary(frame_summary, colorize=colorize)
"""
#: https://github.com/tinygrad/tinygrad/pull/18190: macOS, CPython 3.14
TIMED_OUT = """Timeout (0:00:01)!
Thread 0x000000016e143000 (most recent call first):
  File "/opt/lib/python3.14/site-packages/execnet/gateway_base.py", line 534 in read
  File "/opt/lib/python3.14/site-packages/execnet/gateway_base.py", line 411 in _perform_spawn

Thread 0x00000001f3192240 (most recent call first):
  File "/srv/test_timeout.py", line 9 in test_gil_sleep
  File "/opt/lib/python3.14/unittest/case.py", line 615 in _callTestMethod
"""
#: https://github.com/deepspeedai/DeepSpeed/issues/6524: threads without Python frames, and no line that names the process
SOME_EMPTY = """Thread 4888 (idle): "MainThread"
    _engine_run_backward (torch/autograd/graph.py:769)
    backward (torch/autograd/__init__.py:289)
    <module> (src/fine_tune_accelerate.py:586)
Thread 5406 (idle): "Thread-1"
    wait (threading.py:324)
    _bootstrap (threading.py:973)
Thread 8283 (idle)
Thread 8284 (idle)
Thread 8287 (active)
    partition_grads (deepspeed/runtime/zero/stage3.py:1500)
    wrapped_fn (deepspeed/utils/nvtx.py:18)
"""
#: https://github.com/ray-project/ray/issues/3187: py-spy of 2018, as `ray stack` prints it
OF_2018 = """Thread 0x7F4AA36D9700 (active)
\t _periodically_flush_profile_events (ray/profiling.py:97)
\t run (threading.py:864)
Thread 0x7F4AACDE7700 (active)
\t _get_next_task_from_local_scheduler (ray/worker.py:988)
\t <module> (ray/workers/default_worker.py:105)
"""
#: https://github.com/bloomberg/pystack, README.md: a header without the name of the program
NAMELESS = """$ pystack remote 112
Traceback for thread 112 [] (most recent call last):
    (Python) File "/test.py", line 17, in <module>
        first_func()
    (Python) File "/test.py", line 14, in third_func
        time.sleep(1000)
"""
#: https://bloomberg.github.io/pystack, tutorial on deadlocks
DEADLOCK = """    Traceback for thread 789 (python3) [] (most recent call last):
        (Python) File "/<python_stdlib_path>/threading.py", line 966, in _bootstrap
            self._bootstrap_inner()
        (Python) File "/<python_stdlib_path>/threading.py", line 946, in run
            self._target(*self._args, **self._kwargs)
        (Python) File "/<path_to_tutorials>/deadlock.py", line 10, in background
            with first_lock:
"""
#: https://github.com/openzfs/zfs/issues/7484: two processes, as a shell showed them; a kernel before 4.14
TWO_SHOWN = """    $ sudo cat /proc/32733/stack
    [<ffffffffb3839bd0>] SyS_tee+0x3a0/0x3a0
    [<ffffffffb383197e>] wb_wait_for_completion+0x5e/0x90
    [<ffffffffb3603b7f>] do_syscall_64+0x8f/0xf0
    [<ffffffffffffffff>] 0xffffffffffffffff
    $ sudo cat /proc/29526/stack
    [<ffffffffb36eee0>] __queue_work+0x170/0x480
    [<ffffffffb3603b7f>] do_syscall_64+0x8f/0xf0
    [<ffffffffffffffff>] 0xffffffffffffffff
"""
#: https://github.com/nfs-ganesha/nfs-ganesha/issues/1327
OF_NFS = """cat /proc/3734491/stack
[<0>] nfs_set_open_stateid_locked+0xfc/0x370 [nfsv4]
[<0>] _nfs4_do_open.isra.0+0x168/0x4e0 [nfsv4]
[<0>] do_dentry_open+0x14f/0x430
"""
#: https://github.com/aws/efs-utils/issues/374: another file before it
OF_EFS = """# cat /proc/4905/wchan
do_poll.constprop.0

# cat /proc/4905/stack
[<0>] do_poll.constprop.0+0x235/0x360
[<0>] do_sys_poll+0x164/0x240
[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e
"""


@pytest.mark.parametrize(
    ("text", "innermost"),
    [
        (TWO_SHOWN, {32733: "SyS_tee", 29526: "__queue_work"}),
        (OF_NFS, {3734491: "nfs_set_open_stateid_locked"}),
        (OF_EFS, {4905: "do_poll.constprop.0"}),
    ],
)
def test_kernel_stacks_as_a_shell_shows_them(text: str, innermost: dict[int, str]) -> None:
    assert stack_text.form_of(text) == "/proc/<pid>/stack"
    assert {p.pid: p.threads[0].frames[-1].function for p in kernel_stack.read(text)} == innermost


def test_py_spy_of_threads_without_frames() -> None:
    (process,) = pyspy_text.read(SOME_EMPTY)
    assert [(thread.name, thread.tid, len(thread.frames)) for thread in process.threads] == [
        ("MainThread", 4888, 3), ("Thread-1", 5406, 2), (None, 8283, 0), (None, 8284, 0), (None, 8287, 2),
    ]  # fmt: skip
    assert process.threads[0].frames[-1].function == "_engine_run_backward"


def test_py_spy_of_2018() -> None:
    assert stack_text.form_of(OF_2018) == "the text of py-spy dump"
    (process,) = pyspy_text.read(OF_2018)
    assert [thread.frames[-1].function for thread in process.threads] == [
        "_periodically_flush_profile_events", "_get_next_task_from_local_scheduler",
    ]  # fmt: skip


def test_pystack_without_a_name() -> None:
    (process,) = pystack.read(NAMELESS)
    assert (process.pid, [frame.function for frame in process.threads[0].frames]) == (112, ["<module>", "third_func"])


def test_pystack_indented_in_a_page() -> None:
    assert stack_text.form_of(DEADLOCK) == "the text of pystack"
    (process,) = stack_text.read(DEADLOCK)
    assert [frame.function for frame in process.threads[0].frames] == ["_bootstrap", "run", "background"]


def test_gdb_without_symbols() -> None:
    assert gdb.recognises(NO_SYMBOLS)
    (process,) = gdb.read(NO_SYMBOLS)
    assert [(thread.name, thread.tid, thread.frames[-1].function) for thread in process.threads] == [
        ("cuda00006000019", 3913167, "poll"),
        ("executor_server", 3913159, "epoll_wait"),
    ]
    assert process.threads[0].frames[1] == Frame("start_thread", "", 0, "/lib64/libpthread.so.0")


def test_gdb_that_broke_its_lines() -> None:
    (process,) = gdb.read(BROKEN_LINES)
    assert [(frame.function, frame.file, frame.line) for frame in process.threads[0].frames] == [
        ("PyCOND_TIMEDWAIT", "../Python/condvar.h", 73),
        ("__GI___futex_abstimed_wait_cancelable64", "./nptl/futex-internal.c", 139),
        ("__futex_abstimed_wait_common", "./nptl/futex-internal.c", 87),
        ("__futex_abstimed_wait_common64", "./nptl/futex-internal.c", 57),
    ]


def test_py_bt_that_does_not_find_a_line() -> None:
    assert stack_text.form_of(LINE_UNKNOWN) == "the text of gdb's py-bt"
    (process,) = gdb_python.read(LINE_UNKNOWN)
    assert [(frame.function, frame.line) for frame in process.threads[0].frames] == [
        ("format", 764), ("format_frame_summary", 0), ("output_line", 672),
    ]  # fmt: skip


def test_faulthandler_on_another_system() -> None:
    (process,) = faulthandler.read(TIMED_OUT)
    assert [thread.frames[-1].function for thread in process.threads] == ["read", "test_gil_sleep"]


@pytest.mark.parametrize(
    ("text", "pid", "state"),
    [
        # Linux, Documentation/filesystems/proc.rst
        ("Name:   cat\nState:  R (running)\nTgid:   5452\nPid:    5452\nPPid:   743\nTracerPid:      0\nUid:    501     501     501     501\n", 5452, "R"),
        # man-pages, proc_pid_status(5)
        ("Name:   bash\nUmask:  0022\nState:  S (sleeping)\nTgid:   17248\nNgid:   0\nPid:    17248\nPPid:   17200\nTracerPid:      0\n", 17248, "S"),
    ],
)  # fmt: skip
def test_the_status_of_a_process(text: str, pid: int, state: str) -> None:
    assert proc_status.recognises_status(text)
    found = proc_status.read_status(text)
    assert (found.pid, found.state) == (pid, state)
