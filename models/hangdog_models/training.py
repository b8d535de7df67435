"""Finds the training thread of a trainer: the main one, unless a library runs the training function in another."""

from collections.abc import Iterable
from itertools import islice

from hangdog_models.stack import Frame, Thread

#: Libraries that run the training function in a thread of its own: the ends of a file and of a function there. Both
#: versions of Ray Train in Ray 2.60; the first one also runs functions of Ray Tune.
_RUNNERS = (
    ("ray/train/v2/_internal/execution/worker_group/thread_runner.py", "_run_target"),
    ("ray/air/_internal/util.py", "run"),
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


def _is_run(frames: Iterable[Frame]) -> bool:
    return any(
        frame.file.endswith(file) and frame.function.endswith(function)
        for frame in islice((frame for frame in frames if not frame.native), _OUTERMOST)
        for file, function in _RUNNERS
    )
