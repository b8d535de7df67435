"""Tells the trainers among the processes of a file from those that start them, serve them, or were started by them."""

import re

from hangdog.evidence.content import StackFile
from hangdog_agent.discovery.launchers import launches
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.stack import Frame
from hangdog_models.training import is_no_rank, training_thread

#: What a process has that Python's multiprocessing started.
_CHILD = ("multiprocessing/process.py", "_bootstrap")
#: What inference servers call their workers: `sglang::scheduler_PP1_TP3`, `VLLM::Worker_TP0_EP0`.
TITLE = re.compile(r"(\w+::\w+?)((?:_[A-Z]{2}\d{1,6})+)\b")
_PLACE = re.compile(r"_([A-Z]{2})(\d+)")
#: What Ray calls a worker: the class of its actor, and the method that it runs.
_OF_RAY = re.compile(r"ray::\w{1,200}")


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


def program_of(command: str) -> str:
    """What a process runs, by its command line: trainers of one job run the same."""
    if title := TITLE.match(command) or _OF_RAY.match(command):
        return title[1] if title.re is TITLE else title[0]
    words = command.split()
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    script = next((word for word in words if word.endswith(".py")), words[0] if words else "")
    return script.rpartition("/")[2]


def places_in(command: str) -> dict[str, int]:
    """The place of an inference server's worker along each dimension, as its name tells it."""
    title = TITLE.match(command)
    return {dim: int(number) for dim, number in _PLACE.findall(title[2])} if title else {}


def title_place(command: str) -> int | None:
    """The same along the innermost dimension; None of a process that is no such worker."""
    return places_in(command).get("TP")
