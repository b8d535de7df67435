"""Tells trainers by their stacks, and finds the training thread: the main one, unless a library runs the function in another."""

from collections.abc import Iterable
from itertools import islice

from hangdog_models.stack import Frame, Thread

#: Libraries that run the training function in a thread of its own: the ends of a file and of a function there. Both
#: versions of Ray Train in Ray 2.60; the first one also runs functions of Ray Tune.
_RUNNERS = (
    ("ray/train/v2/_internal/execution/worker_group/thread_runner.py", "_run_target"),
    ("ray/air/_internal/util.py", "run"),
)
#: Programs that start ranks and wait for them, by folders or files in their frames. What else is in `elastic` runs in ranks, too.
_LAUNCHERS = (
    "torch/distributed/elastic/agent/", "torch/distributed/launcher/", "torch/distributed/run.py", "torch/distributed/launch.py",
    "accelerate/commands/launch.py", "deepspeed/launcher/", "horovod/runner/launch.py", "horovod/runner/gloo_run.py",
)  # fmt: skip
#: Processes that are no rank, by the end of a file and functions in it: who waits for ranks it started, and who serves one.
_HELPERS = (
    ("torch/multiprocessing/spawn.py", ("join", "start_processes")),
    ("torch/utils/data/_utils/worker.py", ("_worker_loop",)),
    ("multiprocessing/resource_tracker.py", ("main",)),
    ("multiprocessing/forkserver.py", ("main",)),
    ("multiprocessing/managers.py", ("serve_forever",)),
)
#: Such a frame follows those of `threading`, of which there are three, or more under a debugger.
_OUTERMOST = 8


def training_thread(threads: Iterable[Thread], pid: int | None) -> Thread | None:
    """The thread of process `pid` that runs the training loop; None if it cannot be identified.

    By the library that started it, else by Python's name of the main thread, else by its id. If no thread has a name,
    the last.
    """
    threads = tuple(threads)
    for thread in threads:
        if _is_run(thread.frames):
            return thread
    for thread in threads:
        if thread.name == "MainThread":
            return thread
    for thread in threads:
        if pid is not None and thread.tid == pid:
            return thread
    return threads[-1] if threads and all(thread.name is None for thread in threads) else None


def is_no_rank(frames: Iterable[Frame]) -> bool:
    """Whether the stack of a main thread is of a program that starts ranks, or of a process that serves one."""
    return any(
        any(launcher in frame.file for launcher in _LAUNCHERS)
        or any(frame.file.endswith(file) and frame.function in functions for file, functions in _HELPERS)
        for frame in frames
    )


def _is_run(frames: Iterable[Frame]) -> bool:
    return any(
        frame.file.endswith(file) and frame.function.endswith(function)
        for frame in islice((frame for frame in frames if not frame.native), _OUTERMOST)
        for file, function in _RUNNERS
    )
