"""Stacks that a program prints of its own threads: pytest-timeout, and recipes around `sys._current_frames()`.

Recorded here with pytest-timeout 2.4 and CPython 3.11, and shortened: TIMED_OUT. The other forms are those of
mitogen-hq/mitogen#195, spesmilo/electrum commit 8829b7c, gunicorn's example of a hook, pyrasite's payload `dump_stacks.py`,
and hanging_threads; names and numbers are made up.
"""

import pytest

from hangdog.evidence.content import Logged, StackFile, read_contents
from hangdog.evidence.naming import name_of
from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks import stack_text, stacks_in_log, thread_dump
from hangdog_models.reading.stacks.dumped_process import MAIN, UNNAMED, DumpedProcess
from hangdog_models.stack import Frame

TIMED_OUT = """test_hang.py +++++++++++++++++++++++++++++++++++ Timeout ++++++++++++++++++++++++++++++++++++
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ Captured stdout ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
some output
~~~~~~~~~~~~~~~~~~ Stack of Thread-1 (work) (140006486173376) ~~~~~~~~~~~~~~~~~~
  File "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
    self._bootstrap_inner()
  File "/srv/test_hang.py", line 3, in work
    time.sleep(60)
~~~~~~~~~~~~~~~~~~~~~ Stack of <unknown> (140006486170000) ~~~~~~~~~~~~~~~~~~~~~
  File "/srv/test_hang.py", line 5, in hook
    lock.acquire()
~~~~~~~~~~~~~~~~~~~~ Stack of MainThread (140006563777408) ~~~~~~~~~~~~~~~~~~~~~
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/opt/lib/python3.11/site-packages/_pytest/python.py", line 187, in pytest_pyfunc_call
    result = testfunction(**testargs)
  File "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2806, in all_reduce
    work.wait()
+++++++++++++++++++++++++++++++++++ Timeout ++++++++++++++++++++++++++++++++++++
"""
#: The recipe, as gunicorn's example and many programs have it: `File:` and no indentation.
RECIPE = """
# Thread: loader(140423777646272)
File: "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
  self._bootstrap_inner()
File: "/srv/dumps.py", line 3, in work
  time.sleep(60)

# Thread: MainThread(140423792614272)
File: "/srv/dumps.py", line 19, in <module>
  main()
File: "/srv/dumps.py", line 12, in wait_for_all
  barrier.wait()
File: "/srv/dumps.py", line 10, in on_signal
  for filename, lineno, name, line in traceback.extract_stack(stack):
"""
#: pyrasite's payload: numbers alone
NUMBERS = """Thread 0x7f3fbf4ed6c0
  File "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
    self._bootstrap_inner()
  File "/srv/dumps.py", line 3, in work
    time.sleep(60)

Thread 0x7f3fc0253b80
  File "/srv/dumps.py", line 19, in <module>
    wait_for_all()
"""
#: https://github.com/mitogen-hq/mitogen/issues/195
MITOGEN = """10:00:00 I mitogen.debug: PERIODIC THREAD DUMP

# PID 482 ThreadID: (Thread-1) 139864632157952; <frame object at 0x7f34b8000d60>
File: "/usr/lib64/python2.7/threading.py", line 777, in __bootstrap
    self.__bootstrap_inner()
# PID 482 ThreadID: (MainThread) 139864671676160; <frame object at 0x7f34c6a419d8>
File: "train.py", line 7, in <module>
    main()
"""


def innermost(processes: tuple[DumpedProcess, ...]) -> list[dict[str | None, str]]:
    return [{thread.name: thread.frames[-1].function for thread in process.threads} for process in processes]


def test_pytest_timeout_names_each_thread() -> None:
    assert thread_dump.recognises(TIMED_OUT)
    (process,) = thread_dump.read(TIMED_OUT)
    assert innermost((process,)) == [{"Thread-1 (work)": "work", "<unknown>": "hook", MAIN: "all_reduce"}]
    main = process.threads[-1]
    assert main.tid == 140006563777408
    assert main.frames[0] == Frame("_run_module_as_main", "<frozen runpy>", 198)
    assert main.frames[-1] == Frame("all_reduce", "torch/distributed/distributed_c10d.py", 2806)


def test_the_frame_that_prints_the_stacks_is_left_out() -> None:
    """The thread stood where the signal met it: its handler waits for nothing."""
    assert innermost(thread_dump.read(RECIPE)) == [{"loader": "work", MAIN: "wait_for_all"}]


def test_without_names_the_main_thread_is_the_one_that_runs_a_program() -> None:
    assert innermost(thread_dump.read(NUMBERS)) == [{UNNAMED: "work", MAIN: "<module>"}]


def test_a_header_may_name_the_process() -> None:
    (process,) = thread_dump.read(MITOGEN)
    assert process.pid == 482 and innermost((process,)) == [{"Thread-1": "__bootstrap", MAIN: "<module>"}]


@pytest.mark.parametrize(
    "header",
    [
        "# ThreadID: 140735321682688",  # stacktracer.py, electrum
        "Thread 140735321682688:",
        "Thread 140735321682688 (MainThread):",
        "Thread MainThread (140735321682688)",
        '----------     Thread 140735321682688 "MainThread" hangs       ----------',  # hanging_threads
        "~~~~ Stack of MainThread ~~~~",
        "2026-01-02 03:04:05,678 - WARNING - # Thread: MainThread(140735321682688)",
    ],
)
def test_people_write_the_header_in_several_ways(header: str) -> None:
    begin = header.find("# ") if " - " in header else 0
    text = f'{header}\n{header[:begin]}  File "train.py", line 7, in <module>\n'
    assert thread_dump.recognises(text)
    assert innermost(thread_dump.read(text)) == [{MAIN: "<module>"}]


@pytest.mark.parametrize(
    "text",
    [
        # an exception in a thread, a dump of faulthandler, gdb's py-bt, a frame below a line that only speaks of a thread
        'Exception in thread Thread-1 (work):\nTraceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: x\n',
        'Thread 0x00007f0000000001 (most recent call first):\n  File "/srv/train.py", line 3 in f\n',
        'Thread 1 (Thread 0x7f0 (LWP 71) "python"):\nTraceback (most recent call first):\n  File "a.py", line 3, in f\n',
        '  File "a.py", line 2, in start\n    thread.start()  # Thread 1\n  File "b.py", line 3, in f\n',
        'Thread 1 took 3 s\n  File "b.py", line 3, in f\n',
    ],
)
def test_what_names_no_thread_is_no_dump(text: str) -> None:
    assert thread_dump.read(text) == ()


def test_the_frames_of_an_exception_are_no_threads() -> None:
    text = NUMBERS + 'Traceback (most recent call last):\n  File "a.py", line 3, in broken\nValueError: x\n'
    assert innermost(thread_dump.read(text))[0][MAIN] == "<module>"


def test_the_last_dump_of_a_process_counts() -> None:
    later = TIMED_OUT.replace("in all_reduce", "in broadcast")
    assert [found[MAIN] for found in innermost(thread_dump.read(TIMED_OUT + later))] == ["broadcast"]
    assert [found[MAIN] for found in innermost(thread_dump.read(RECIPE + RECIPE.replace("wait_for_all", "load")))] == [
        "load"
    ]


def test_two_main_threads_are_two_processes() -> None:
    other = TIMED_OUT.replace("140006563777408", "139006563777408").replace("in all_reduce", "in broadcast")
    assert [found[MAIN] for found in innermost(thread_dump.read(TIMED_OUT + other))] == ["all_reduce", "broadcast"]


def test_lines_of_several_ranks_may_be_mixed() -> None:
    first, second = (
        [f"[rank{rank}]: {line}" for line in TIMED_OUT.replace("in all_reduce", f"in f{rank}").splitlines()]
        for rank in (0, 1)
    )
    mixed = "\n".join(line for both in zip(first, second, strict=True) for line in both)
    found = thread_dump.read(mixed)
    assert [process.ranks for process in found] == [(0,), (1,)]
    assert [threads[MAIN] for threads in innermost(found)] == ["f0", "f1"]
    assert [process.ranks for process in thread_dump.read(mixed, Rank(1))] == [(0,), ()]


def test_a_log_with_a_dump_is_both() -> None:
    log = "[rank3]: NCCL error: unhandled system error\n"
    logged, stacks = read_contents(name_of("rank3.log"), (log + TIMED_OUT).encode(), DEFAULTS)
    assert isinstance(logged, Logged) and isinstance(stacks, StackFile) and stacks.processes
    (alone,) = read_contents(name_of("rank3.txt"), RECIPE.encode(), DEFAULTS)
    assert isinstance(alone, StackFile)
    assert stacks_in_log.may_hold(NUMBERS.encode()) and stacks_in_log.may_hold(RECIPE.encode())


def test_below_a_header_of_ranks_it_is_of_these_ranks() -> None:
    found = stack_text.read(f"=== rank 3 ===\n{TIMED_OUT}=== rank 4 ===\n{RECIPE}")
    assert [process.ranks for process in found] == [(3,), (4,)]


def test_what_is_past_a_limit_is_passed_over() -> None:
    (process,) = thread_dump.read(TIMED_OUT, None, Limits(threads=2, frames=1))
    assert [len(thread.frames) for thread in process.threads] == [1, 1]


def tasks(*waits: str, version: str = "3.12") -> str:
    """What three tasks print, as recorded: CPython 3.8.18 and 3.12.1."""
    wakeup = "[Task.task_wakeup()]" if version == "3.12" else "[<TaskWakeupMethWrapper object at 0x7f8c5c4919d0>()]"
    done = f"cb=[gather.<locals>._done_callback() at /usr/lib/python{version}/asyncio/tasks.py:767]"
    return "".join(
        f"Stack for <Task pending name='{name}' coro=<{function}() running at /app/at.py:{line}> "
        f"wait_for=<Future pending cb={wakeup}> {done}> (most recent call last):\n"
        f'  File "/app/at.py", line {line}, in {function}\n    await fetch(q)\n'
        for name, function, line in (wait.split() for wait in waits)
    )


@pytest.mark.parametrize("version", ["3.8", "3.12"])
def test_tasks_of_asyncio_are_threads_and_the_first_one_is_the_main_one(version: str) -> None:
    text = tasks("worker-1 worker 5", "Task-1 main 14", "worker-0 worker 5", version=version)
    assert thread_dump.recognises(text)
    (process,) = thread_dump.read(text)
    assert [(thread.name, thread.frames) for thread in process.threads] == [
        ("worker-1", (Frame("worker", "/app/at.py", 5),)),
        ("MainThread", (Frame("main", "/app/at.py", 14),)),
        ("worker-0", (Frame("worker", "/app/at.py", 5),)),
    ]


def test_the_last_look_at_tasks_counts() -> None:
    text = tasks("Task-1 main 14", "worker-0 worker 5") + tasks("Task-1 main 20", "worker-0 worker 5")
    (process,) = thread_dump.read(text)
    assert [thread.frames[0].line for thread in process.threads] == [20, 5]


def test_a_real_main_thread_counts_before_a_task() -> None:
    text = '# Thread: MainThread(1234)\nFile "/app/at.py", line 30, in <module>\n' + tasks("Task-1 main 14")
    (process,) = thread_dump.read(text)
    assert [(thread.name, thread.frames[0].line) for thread in process.threads] == [("MainThread", 30), ("Task-1", 14)]
