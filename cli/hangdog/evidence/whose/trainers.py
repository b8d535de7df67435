"""Tells the trainers among the processes of a file from those that start them, serve them, or were started by them."""

from hangdog.evidence.content import StackFile
from hangdog_agent.discovery.launchers import launches
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.stack import Frame
from hangdog_models.training import is_no_rank, training_thread

#: What a process has that Python's multiprocessing started.
_CHILD = ("multiprocessing/process.py", "_bootstrap")


def trainers(file: StackFile) -> list[DumpedProcess]:
    """Those that may train, and of which there is the stack of a main thread; a child of another one is none."""
    found = [process for process in file.processes if _may_train(process)]
    return [process for process in found if not _is_child(process)] or found


def holds_several(file: StackFile) -> bool:
    """Whether it is of a machine rather than of a rank."""
    return len(trainers(file)) > 1


def _may_train(process: DumpedProcess) -> bool:
    frames = _main(process)
    return bool(frames) and not is_no_rank(frames) and not launches("", process.command.split())


def _is_child(process: DumpedProcess) -> bool:
    return any(frame.file.endswith(_CHILD[0]) and frame.function == _CHILD[1] for frame in _main(process))


def _main(process: DumpedProcess) -> tuple[Frame, ...]:
    thread = training_thread(process.threads, process.pid)
    return thread.frames if thread else ()
