"""Reads the stacks that a Python program prints of its own threads, outermost frame first: a line that names each thread, its frames below.

So does pytest-timeout, and so do the recipes around `sys._current_frames()` that programs use: on a signal, by a timer, for a
page. Lines of several processes may be mixed; what stands before a line tells them apart, as in dumps of `faulthandler`.

A task of asyncio that prints its stack (`Task.print_stack`, CPython 3.8 to 3.14) counts as a thread. Of one that waits only the
coroutine that awaits is shown. What `asyncio.run` was given counts as the main thread where no real one is in the dump.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdog_models.ranks import Rank
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.line_owner import NOBODY, LineOwner, owner_of
from hangdog_models.reading.stacks.dumped_process import (
    MAIN,
    UNNAMED,
    DumpedProcess,
    installed_path,
    lines_of,
    without_remark,
)
from hangdog_models.stack import Frame, Thread

_ID = r"(?:0x(?P<hex>[0-9a-fA-F]{1,16})|(?P<id>\d{4,20}))"
#: A thread's name; since Python 3.10 the function may stand in it, too: `Thread-1 (work)`.
_NAME = r"(?P<name>[^()\"\n]{1,200}(?:\([^()\n]{0,200}\))?)"
#: The lines that name a thread, each by what it begins with. None can be a line of a source, for those stand below frames, too.
_HEADERS = tuple(
    (begin, re.compile(form + r"[ \t]*$", re.MULTILINE))
    for begin, form in (
        # pytest-timeout
        ("~~ Stack of ", rf"~~ Stack of {_NAME} \({_ID}\) ~{{1,200}}"),
        ("~~ Stack of ", rf"~~ Stack of {_NAME} ~{{1,200}}"),
        # the recipe of many programs, as of gunicorn's example of a hook, and mitogen's, which has the process, too
        ("# Thread: ", rf"# Thread: {_NAME}\({_ID}\)"),
        ("# Thread", rf"# Thread ?ID: {_ID}"),
        ("# PID ", rf"# PID (?P<pid>\d{{1,18}}) ThreadID: \({_NAME}\) {_ID}(?:; <frame .{{0,200}}>)?"),
        # pyrasite's payload, and what people write
        ("Thread ", rf"Thread {_ID}(?: \((?!most recent){_NAME}\))?[: \t-]{{0,200}}"),
        ("Thread ", rf"Thread {_ID} \"{_NAME}\"(?: hangs)?[: \t-]{{0,200}}"),
        ("Thread ", rf"Thread {_NAME} \({_ID}\):?"),
        # asyncio's base_tasks.py
        (
            "Stack for <Task ",
            r"Stack for <Task [a-z]{1,20} name='(?P<name>[^'\n]{1,200})' .{1,4000}> \(most recent call last\):",
        ),
    )
)
#: What those lines begin with.
BEGINNINGS = tuple(begin for begin, _ in _HEADERS)
#: `traceback` writes a frame like this; the recipe writes a colon, too, and people lose the quotes.
_FRAME = re.compile(r'File:? "?(.{1,4000}?)"?, line (\d{1,9}), in (\S.*)')
#: The line above and below a dump of pytest-timeout.
_TIMEOUT = "+++ Timeout +++"
#: What ends a thread: the frames of an exception are no thread's, and pytest prints captured output between lines of its own.
_ENDS = ("Traceback (most recent call ", _TIMEOUT, "~ Captured std")
_END = re.compile("|".join(map(re.escape, _ENDS)))
#: The source line of whoever prints the stacks: its own frame is where no thread waits.
_PRINTS = re.compile(r"\btraceback\.(?:print|format|extract)_stack\(|\bsys\._current_frames\(")
#: Where CPython starts every thread but the first: the outermost frame of such a thread.
_STARTED = ("threading.py", "_bootstrap")
#: Where a program begins: the outermost frames of the main thread, also of a process that `multiprocessing` started.
_BEGINS = ("<module>", "_run_module_as_main")
#: What asyncio calls the task of the coroutine that `asyncio.run` was given.
_FIRST_TASK = "Task-1"
#: Processes told apart in one text.
_MOST_PROCESSES = 1 << 16


@dataclass(slots=True)
class _PrintedThread:
    """A thread whose frames are still being read, outermost first. `over`: what follows is none of it."""

    tid: int
    name: str
    frames: list[Frame] = field(default_factory=list)
    over: bool = False


@dataclass(slots=True)
class _PrintedThreads:
    """One dump of one process. `pid` where a header tells it."""

    threads: list[_PrintedThread] = field(default_factory=list)
    tids: set[int] = field(default_factory=set)
    pid: int | None = None


@dataclass(slots=True)
class _PrintingProcess:
    """The dumps of one owner that may count: one for each main thread, by its id. `open` is the one that is being read."""

    dumps: dict[int | None, _PrintedThreads] = field(default_factory=dict)
    open: _PrintedThreads = field(default_factory=_PrintedThreads)
    over: bool = False


def recognises(text: str) -> bool:
    """Whether a line that names a thread is in a text that may have frames, too; to be asked of the whole text."""
    return ", in " in text and any(_names(text, begin, header) for begin, header in _HEADERS)


def _names(text: str, begin: str, header: re.Pattern[str]) -> bool:
    at = text.find(begin)
    while at >= 0:
        if header.match(text, at):
            return True
        at = text.find(begin, at + 1)
    return False


def read(text: str, rank: Rank | None = None, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The last dump of each process in a text, in the order of their first lines. What no line tells belongs to `rank`.

    Never raises: what is past a limit is passed over, for the rest of a log is worth reading.
    """
    processes: dict[LineOwner, _PrintingProcess] = {}
    printing: _PrintedThread | None = None  # the thread whose frame stands in the line before
    for line in lines_of(text):
        mark = _mark(line)
        if mark is None:
            if printing is not None and _PRINTS.search(line):
                printing.frames.pop()
            printing = None
            continue
        printing = None
        owner = owner_of(line[: mark.start()].rstrip("-=~+ \t"))
        if owner.rank is not None and owner.rank == rank:
            owner = NOBODY
        process = processes.get(owner)
        is_header = mark.re not in (_FRAME, _END)
        if process is None:
            if not is_header or len(processes) >= _MOST_PROCESSES:
                continue
            process = processes[owner] = _PrintingProcess()
        if is_header:
            _open_thread(process, mark, limits)
        elif mark.re is _END:
            _close(process, mark[0])
        elif process.open.threads and not process.open.threads[-1].over:
            printing = _add(process.open.threads[-1], mark, limits)
    return tuple(found for owner, process in processes.items() for found in _dumped(owner, process))


def _mark(line: str) -> re.Match[str] | None:
    """What a line says, wherever in it that begins; None for lines of others."""
    at = line.rfind(", line ")
    if at >= 0:
        begin = line.rfind("File", 0, at)
        return _FRAME.match(line, begin) if begin >= 0 else None
    for words, header in _HEADERS:
        begin = line.find(words)
        if begin >= 0 and (found := header.match(line, begin)):
            return found
    return _END.search(line)


def _open_thread(process: _PrintingProcess, header: re.Match[str], limits: Limits) -> None:
    """Begins a thread, and a dump where the last one is over or has this thread already."""
    named = header.groupdict()
    tid = int(named["hex"], 16) if named.get("hex") else int(named.get("id") or 0)
    name = text_of((named.get("name") or "").strip(), limits)
    dump = process.open
    only_once = name in (MAIN, _FIRST_TASK) and any(thread.name == name for thread in dump.threads)
    again = (tid and tid in dump.tids) or only_once
    if process.over or again:
        _keep(process)
        dump = process.open
    dump.tids.add(tid)
    if named.get("pid"):
        dump.pid = int(named["pid"])
    if len(dump.threads) < limits.threads:
        dump.threads.append(_PrintedThread(tid, name))
    elif dump.threads:
        dump.threads[-1].over = True


def _close(process: _PrintingProcess, words: str) -> None:
    if process.open.threads:
        process.open.threads[-1].over = True
        process.over = process.over or words == _TIMEOUT


def _add(thread: _PrintedThread, mark: re.Match[str], limits: Limits) -> _PrintedThread | None:
    if len(thread.frames) >= limits.frames:
        return None
    file, line, function = mark.groups()
    path = text_of(installed_path(file), limits)
    thread.frames.append(Frame(text_of(without_remark(function), limits), path, int(line)))
    return thread


def _keep(process: _PrintingProcess) -> None:
    """Keeps the dump that was read as the last one of its main thread; one without a stack tells nothing."""
    dump, process.open, process.over = process.open, _PrintedThreads(), False
    if not any(thread.frames for thread in dump.threads):
        return
    main = _main(dump)
    key = main.tid if main is not None else None
    if key in process.dumps or len(process.dumps) < _MOST_PROCESSES:
        process.dumps.pop(key, None)
        process.dumps[key] = dump


def _main(dump: _PrintedThreads) -> _PrintedThread | None:
    """The main thread: by its name, else the only one that runs a program, else the only one that Python did not start.

    Else the task that began the others.
    """
    named = [thread for thread in dump.threads if thread.name == MAIN]
    begins = [thread for thread in dump.threads if thread.frames and thread.frames[0].function in _BEGINS]
    others = [thread for thread in dump.threads if thread.frames and not _started(thread)]
    tasks = [thread for thread in others if thread.name == _FIRST_TASK]
    return next((found[0] for found in (named, begins, others, tasks) if len(found) == 1), None)


def _started(thread: _PrintedThread) -> bool:
    outermost = thread.frames[0]
    return (outermost.file.replace("\\", "/").rpartition("/")[2], outermost.function) == _STARTED


def _dumped(owner: LineOwner, process: _PrintingProcess) -> Iterator[DumpedProcess]:
    _keep(process)
    dumps = [dump for key, dump in process.dumps.items() if key is not None] or list(process.dumps.values())
    ranks = () if owner.rank is None or len(dumps) > 1 else (owner.rank,)
    for dump in dumps:
        main = _main(dump)
        threads = tuple(
            Thread(MAIN if thread is main else thread.name or UNNAMED, thread.tid, tuple(thread.frames))
            for thread in dump.threads
        )
        yield DumpedProcess(owner.process or dump.pid, threads, ranks=ranks, local=owner.local)
