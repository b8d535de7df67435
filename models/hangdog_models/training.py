"""Tells which thread of a trainer trains: the main one, except where a library has the training function run in one of its own."""

from collections.abc import Iterable
from itertools import islice

from hangdog_models.stack import Frame, Thread

#: Who has the training function run in a thread of its own: the ends of a file and of a function there. Both versions of Ray
#: Train in Ray 2.60; with the first one functions of Ray Tune.
_RUNNERS = (
    ("ray/train/v2/_internal/execution/worker_group/thread_runner.py", "_run_target"),
    ("ray/air/_internal/util.py", "run"),
)
#: Such a frame follows those of `threading`, of which there are three, or more under a debugger.
_OUTERMOST = 8


def training_thread(threads: Iterable[Thread], pid: int | None) -> Thread | None:
    """The thread of process `pid` that runs the training loop; None when none is told to.

    By who started it, else by Python's name of the main thread, else by its id, else the last one of those without names.
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
