"""Tells the trainers among the processes of a file from those that start them, serve them, or were started by them."""

from hangdog.evidence.content import StackFile
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.training import training_thread

#: Frames of processes that start trainers, or serve them: launchers, multiprocessing's helpers, loader workers.
_NO_TRAINER = (
    "torch/distributed/elastic/",
    "torch/distributed/run.py",
    "torch/distributed/launch",
    "torch/multiprocessing/spawn.py:join",
    "torch/utils/data/_utils/worker.py",
    "accelerate/commands/",
    "deepspeed/launcher/",
    "horovod/runner/",
    "multiprocessing/resource_tracker.py",
    "multiprocessing/forkserver.py",
    "multiprocessing/managers.py:serve_forever",
)
#: What a process has that Python's multiprocessing started.
_CHILD = "multiprocessing/process.py:_bootstrap"


def trainers(file: StackFile) -> list[DumpedProcess]:
    """Those that may train, and of which there is the stack of a main thread; a child of another one is none."""
    found = [(process, places) for process in file.processes if (places := _places(process))]
    found = [
        (process, places) for process, places in found if not any(mark in at for at in places for mark in _NO_TRAINER)
    ]
    parents = [process for process, places in found if not any(_CHILD in at for at in places)]
    return parents or [process for process, _ in found]


def holds_several(file: StackFile) -> bool:
    """Whether it is of a machine rather than of a rank."""
    return len(trainers(file)) > 1


def _places(process: DumpedProcess) -> list[str]:
    thread = training_thread(process.threads, process.pid)
    return [f"{frame.file}:{frame.function}" for frame in thread.frames] if thread else []
