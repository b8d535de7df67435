"""Reads `/proc/PID/stack` and `/proc/PID/task/TID/stack`: where threads sleep inside the kernel."""

import re
from itertools import islice, pairwise

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import (
    MAIN,
    UNNAMED,
    DumpedProcess,
    check_frames,
    check_threads,
    lines_of,
)
from hangdog_models.stack import Frame, Thread

#: What stands for a library in the frames of the kernel itself; those of its modules bear the module's name.
KERNEL = "kernel"
#: Kernels before 4.14 print an address, later ones `<0>`. `grep . /proc/*/stack` puts the file's name before each line.
_FRAME = re.compile(
    r"(?:(\S{1,200}):)?\s{0,8}\[<[0-9a-fA-F]{1,16}>\] ([\w.]{1,256})\+0x[0-9a-f]{1,16}/0x[0-9a-f]{1,16}(?: \[(\w{1,64})\])?"
)
#: The line of the file's name before its content, as `head` and loops over files print it, or the command that showed it.
_FILE = re.compile(r"(?:.{0,200}\bcat\b)?[^\w/]{0,12}(\S{0,100}/proc/\d{1,18}(?:/task/\d{1,18})?(?:/stack)?)\W{0,12}")
_TASK = re.compile(r"/proc/(\d{1,18})(?:/task/(\d{1,18}))?(?:/stack)?$")

#: Lines within which a stack begins: other files of the process may be shown before it.
_HEAD_LINES = 100

_Task = tuple[int | None, int]


def recognises(head: str) -> bool:
    """Whether a text begins with a frame of `/proc/PID/stack`, or has one below the file's name; in a kernel's log others stand first."""
    lines = list(islice(lines_of(head), _HEAD_LINES))
    named = (_FILE.fullmatch(name) and _FRAME.fullmatch(line) for name, line in pairwise(lines))
    return any(_FRAME.fullmatch(line) for line in lines[:3]) or any(named)


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of the text. Without a file's name it is of one thread: that of `/proc/PID/stack`, the main one."""
    stacks: dict[_Task, list[Frame]] = {}
    task: _Task = (None, 0)
    for line in lines_of(text):
        if frame := _FRAME.fullmatch(line):
            own = _task(frame[1]) if frame[1] else task
            frames = stacks.setdefault(own, [])
            check_threads(len(stacks), limits)
            module = text_of(frame[3] or KERNEL, limits)
            frames.append(Frame(text_of(frame[2], limits), KERNEL, 0, module))
            check_frames(len(frames), limits)
        elif file := _FILE.fullmatch(line):
            task = _task(file[1])
    if not stacks:
        raise UnreadableEvidence("not /proc/<pid>/stack: no frame of the kernel in it", code="no-stack")
    processes: dict[int | None, list[Thread]] = {}
    for (pid, tid), frames in stacks.items():
        name = MAIN if tid in (pid, 0) else UNNAMED
        processes.setdefault(pid, []).append(Thread(name, tid, tuple(reversed(frames))))
    return tuple(DumpedProcess(pid, tuple(threads), native=True) for pid, threads in processes.items())


def _task(path: str) -> _Task:
    """Process and thread that a path names; `/proc/7/stack` is of thread 7."""
    found = _TASK.search(path)
    return (None, 0) if found is None else (int(found[1]), int(found[2] or found[1]))
