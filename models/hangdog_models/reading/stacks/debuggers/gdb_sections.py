"""Takes what gdb prints for all threads apart: processes, and for each thread its header and the lines below it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.stacks.dumped_process import check_frames, check_threads, lines_of

_THREAD = re.compile(r"(?:Thread|\[Switching to thread) (\d{1,9}) \((.*)\)(?::|\])?")
_TASK = re.compile(r"(?:LWP|process) (\d{1,18})")
#: What stands before the first line of an answer where somebody copied a terminal.
_PROMPT = re.compile(r"(?:\(gdb\) ){1,20}")
_COMM = re.compile(r'"(.*)"')
#: What gdb says when it lets go of a process that it attached to.
_DETACHED = re.compile(r"\[Inferior \d{1,9} \(process (\d{1,18})\) detached\]")
#: What begins the output of another gdb.
_ATTACHED = ("[New LWP ", "[Thread debugging using ", "Attaching to ", "[Inferior ")


@dataclass(slots=True)
class GdbThread:
    """One thread as gdb numbers it, from 1; number 0 where no header is printed, as for the one thread of `bt`."""

    number: int
    tid: int
    name: str | None
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class GdbProcess:
    """The threads of one listing; `pid` is the task id of thread 1, or what gdb says when it detaches."""

    threads: list[GdbThread] = field(default_factory=list)
    pid: int | None = None
    begun: bool = False  # a line was read that no thread of the process before can own


def header_of(line: str) -> re.Match[str] | None:
    """gdb's header of a thread, if the line is one."""
    header = _THREAD.fullmatch(line) if line.startswith(("Thread ", "[Switching to thread ")) else None
    return header if header is not None and _TASK.search(header[2]) is not None else None


def lines_of_gdb(text: str) -> Iterator[str]:
    """The lines of gdb's answers, without its prompt."""
    for line in lines_of(text):
        prompt = _PROMPT.match(line)
        yield line[prompt.end() :] if prompt else line


def processes_of(text: str, limits: Limits) -> Iterator[GdbProcess]:
    """The listings of a text. A listing ends where gdb detaches or attaches, or where its threads' order starts again."""
    current, count = GdbProcess(), 0
    for line in lines_of_gdb(text):
        if header := header_of(line):
            check_threads(count := count + 1, limits)
            task, comm = _TASK.search(header[2]), _COMM.search(header[2])
            tid = int(task[1]) if task else 0
            thread = GdbThread(int(header[1]), tid, text_of(comm[1], limits) if comm else None)
            again = line[0] != "[" and _starts_again(current.threads, thread)  # people choose threads in any order
            if current.begun or again:
                yield current
                current = GdbProcess()
            current.threads.append(thread)
            if thread.number == 1:
                current.pid = tid
        elif detached := _DETACHED.fullmatch(line):
            current.pid = current.pid or int(detached[1])
            current.begun = True
        elif line.startswith(_ATTACHED):
            current.begun = bool(current.threads)
        else:
            if current.begun:
                yield current
                current = GdbProcess()
            if not current.threads:
                current.threads.append(GdbThread(0, 0, None))
            current.threads[-1].lines.append(line)
            check_frames(len(current.threads[-1].lines), limits)
    yield current


def _starts_again(threads: list[GdbThread], thread: GdbThread) -> bool:
    """Whether the numbers no longer ascend, or descend, as they did."""
    numbers = [one.number for one in threads[-2:] if one.number]
    if not numbers:
        return False
    if numbers[-1] == thread.number:
        return True
    return len(numbers) == 2 and (numbers[1] > numbers[0]) != (thread.number > numbers[1])
