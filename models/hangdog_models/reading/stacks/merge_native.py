"""Adds the native stacks of a process to its Python stacks, where both speak of the same threads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.stack import Frame, Thread

#: The interpreter's loop: what a native stack shows below the last of these is what the innermost Python frame called.
_EVALUATES = ("_PyEval_EvalFrame", "PyEval_EvalFrame", "_TAIL_CALL_", "_PyEval_Vector")
#: The name of a thread that only the native tool saw and did not name: no reader may take it for the main thread.
_UNNAMED = "native"


def merge_native(python: DumpedProcess, native: DumpedProcess) -> DumpedProcess | None:
    """The Python threads with the native frames below them, then the threads that have no Python frames.

    None where the main thread's id is not found in both, so that nothing says they are the same process.
    """
    if python.pid is None or python.pid != native.pid:
        return None
    ours = {thread.tid: thread for thread in python.threads}
    if python.pid not in ours or not _distinct(python.threads) or not _distinct(native.threads):
        return None
    below = {thread.tid: _below(thread.frames) for thread in native.threads}
    threads = [_deeper(thread, below) for thread in python.threads]
    threads += [
        structs.replace(thread, name=thread.name or _UNNAMED) for thread in native.threads if thread.tid not in ours
    ]
    return replace(python, threads=tuple(threads))


def _deeper(thread: Thread, below: Mapping[int, tuple[Frame, ...]]) -> Thread:
    if not thread.frames or any(frame.native for frame in thread.frames):  # py-spy --native saw more than gdb can add
        return thread
    return structs.replace(thread, frames=thread.frames + below.get(thread.tid, ()))


def _below(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The native frames that the innermost Python frame called; empty where the interpreter is not in the stack."""
    for at in range(len(frames) - 1, -1, -1):
        if frames[at].function.startswith(_EVALUATES):
            return tuple(frames[at + 1 :])
    return ()


def _distinct(threads: Sequence[Thread]) -> bool:
    return len({thread.tid for thread in threads}) == len(threads)
