"""Reads what CPython's `faulthandler` prints, alone or in a log: by a timer, by a signal, by a fatal error such as an abort.

A log may hold several dumps of one process, and dumps of several processes whose lines are mixed. What stands before a
line tells them apart. Of several dumps of one process the last one that shows its main thread counts.

A dump by a signal that ends a process at once shows where it died: whoever is dead has no stack, so none is read of it.
"""

import re
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

#: Names of threads are printed since CPython 3.14.
_THREAD = re.compile(
    r"(?:Current thread|Thread) 0x([0-9a-fA-F]{1,16}) (?:\[([^\n]{0,64})\] )?\(most recent call first\):$"
)
#: The current thread alone, whichever it is; a build without the interpreter's lock prints no other.
_ALONE = re.compile(r"Stack \(most recent call first\):$")
_FRAME = re.compile(r'File (?:"(.*)"|\?\?\?), line (\d{1,9}|\?\?\?) in (\S.*)')
_BEGINS = re.compile(
    r"Fatal Python error: (?P<fatal>Segmentation fault|Bus error|Floating-point exception|Illegal instruction)?"
    r"|Timeout \(\d{1,9}:\d\d:\d\d(?:\.\d{1,9})?\)!$"
)
_HEADER = re.compile(
    r"(?:(?:Current thread|Thread) 0x[0-9a-fA-F]{1,16} (?:\[[^\n]{0,64}\] )?|Stack )\(most recent call first\):"
)
#: What stands below a thread's header in place of frames, or before them.
_NO_FRAMES = ("<no Python frame>", "<tstate is freed>")
_COLLECTS = "Garbage-collecting"
_MORE = "..."
_REST = re.compile(rf"(?<!\S)({'|'.join(map(re.escape, (*_NO_FRAMES, _COLLECTS, _MORE)))})$")
#: Frames of a thread, and threads of a process, that CPython prints (3.1 to 3.14); what is beyond them becomes "...".
_PRINTED = 100
#: Where CPython starts every thread but the first: the outermost frame of such a thread.
_STARTED = ("threading.py", "_bootstrap")
#: The code that PyTorch's loader workers run, in the main thread of a process of their own.
_WORKER = ("torch/utils/data/_utils/worker.py", "_worker_loop")
#: How a collection shows in a native stack; `faulthandler` says it in words.
_COLLECTION = Frame("gc_collect_main", "", 0, "python")
#: Processes told apart in one text.
_MOST_PROCESSES = 1 << 16
_HEADERS = (_THREAD, _ALONE)
_ENDINGS = (*_NO_FRAMES, _COLLECTS, _MORE)


@dataclass(slots=True)
class _OpenThread:
    """A thread whose frames are still being read, innermost first. `frameless`: a line below its header says that it has none."""

    tid: int
    name: str
    frames: list[Frame] = field(default_factory=list)
    frameless: bool = False
    cut: bool = False
    collects: bool = False


@dataclass(slots=True)
class _Dump:
    """One dump of one process. `alone`: of one thread only; `cut`: the process has more threads than are printed.

    `fatal`: by a signal that ended the process.
    """

    threads: list[_OpenThread] = field(default_factory=list)
    alone: bool = False
    cut: bool = False
    fatal: bool = False


@dataclass(slots=True)
class _DumpingProcess:
    """The dumps of one process that may count, oldest first. `over`: what follows is of another dump, `fatal` as that one.

    `mains`: the main threads of all dumps. A process has one; a launcher's label may stand before the lines of several.
    """

    dumps: list[_Dump] = field(default_factory=lambda: [_Dump()])
    over: bool = False
    fatal: bool = False
    tids: set[int] = field(default_factory=set)
    mains: set[int] = field(default_factory=set)


def recognises(text: str) -> bool:
    """Whether a dump is in a text; to be asked of the whole text."""
    return "(most recent call first):" in text and _HEADER.search(text) is not None


def read(text: str, rank: Rank | None = None, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """One dump of each process in a text, in the order of their first lines. What no line tells belongs to `rank`.

    Never raises: what is past a limit is passed over, for the rest of a log is worth reading.
    """
    processes: dict[LineOwner, _DumpingProcess] = {}
    for line in lines_of(text):
        mark = _mark(line)
        if mark is None:
            continue
        owner = owner_of(line[: mark.start()])
        if owner.rank is not None and owner.rank == rank:
            owner = NOBODY
        process = processes.get(owner)
        if process is None:
            if len(processes) >= _MOST_PROCESSES:
                continue
            process = processes[owner] = _DumpingProcess()
        if mark.re in _HEADERS:
            _open_thread(process, mark, limits)
        elif mark.re is _BEGINS:
            process.over, process.fatal = True, mark["fatal"] is not None
        elif not process.over and process.dumps[-1].threads:
            _add(process.dumps[-1], mark, limits)
    return tuple(filter(None, (_dumped(owner, process) for owner, process in processes.items())))


def _mark(line: str) -> re.Match[str] | None:
    """What a line says, wherever in it that begins; None for lines of others."""
    if "most recent call first" in line:
        return _THREAD.search(line) or _ALONE.search(line)
    at = line.rfind(", line ")
    if at >= 0:
        return _FRAME.match(line, max(0, line.rfind("File ", 0, at)))
    if "Fatal Python error" in line or "Timeout (" in line:
        return _BEGINS.search(line)
    return _REST.search(line) if line.endswith(_ENDINGS) else None


def _open_thread(process: _DumpingProcess, header: re.Match[str], limits: Limits) -> None:
    """Begins a thread, and a dump where the last one is over or has this thread already."""
    dump, alone = process.dumps[-1], header.re is _ALONE
    tid = 0 if alone else int(header[1], 16)
    if process.over or alone or dump.alone or tid in process.tids:
        if dump.threads:
            process.dumps = [*_kept(process), dump := _Dump()]
        dump.fatal = process.fatal
        process.over = process.fatal = False
        process.tids.clear()
    process.tids.add(tid)
    dump.alone = alone
    if len(dump.threads) < limits.threads:
        dump.threads.append(_OpenThread(tid, "" if alone else text_of(header[2], limits)))
    else:
        dump.cut = True


def _add(dump: _Dump, mark: re.Match[str], limits: Limits) -> None:
    last = dump.threads[-1]
    if mark.re is _FRAME:
        file, line, function = mark.groups()
        function, number = without_remark(function), int(line) if line.isdigit() else 0
        if len(last.frames) < limits.frames:
            last.frames.append(Frame(text_of(function, limits), text_of(installed_path(file or ""), limits), number))
    elif mark[1] == _COLLECTS:
        last.collects = True
    elif mark[1] != _MORE:
        last.frameless = True
    elif len(last.frames) >= _PRINTED and not last.cut:
        last.cut = True
    else:
        dump.cut = True


def _kept(process: _DumpingProcess) -> list[_Dump]:
    """The last dump of a trainer's main thread, or where there is none the last one: one that repeats for a day is thousands."""
    dumps = [dump for dump in process.dumps if dump.threads and not _is_worker(dump)]
    process.mains.update(tid for dump in dumps for tid in _mains(dump))
    return [dump for dump in dumps if _main(dump) is not None][-1:] or dumps[-1:]


def _main(dump: _Dump) -> _OpenThread | None:
    """The main thread: CPython prints the newest thread first, so it is the last one, if the dump came to its end.

    A thread that Python started shows who started it. Where the end is missing, it is the one that runs a module.
    """
    modules = [thread for thread in dump.threads if thread.frames and thread.frames[-1].function == "<module>"]
    last = dump.threads[-1] if dump.threads else None
    if len(modules) > 1:  # the lines of several processes are mixed
        return None
    if last is not None and last.frames and not dump.cut and not dump.alone and not _started(last):
        return last
    return modules[0] if modules else None


def _mains(dump: _Dump) -> list[int]:
    """The ids of all threads of a dump that run a module, or of its main thread."""
    main = _main(dump)
    modules = [thread.tid for thread in dump.threads if thread.frames and thread.frames[-1].function == "<module>"]
    return modules or ([main.tid] if main is not None else [])


def _started(thread: _OpenThread) -> bool:
    outermost = thread.frames[-1]
    return (outermost.file.rpartition("/")[2], outermost.function) == _STARTED


def _is_worker(dump: _Dump) -> bool:
    """Whether it is of a process that loads data for a trainer and writes to the same file."""
    main = _main(dump)
    frames = main.frames if main is not None else ()
    return any(frame.function == _WORKER[1] and frame.file.endswith(_WORKER[0]) for frame in frames)


def _dumped(owner: LineOwner, process: _DumpingProcess) -> DumpedProcess | None:
    dumps = _kept(process)
    if not dumps or dumps[-1].fatal or not any(thread.frames or thread.frameless for thread in dumps[-1].threads):
        return None
    main = _main(dumps[-1])
    threads = tuple(_thread(thread, thread is main) for thread in dumps[-1].threads)
    mixed = owner.task and len(process.mains) > 1  # a task of Slurm that is a launcher of several ranks
    ranks = () if owner.rank is None or mixed else (owner.rank,)
    return DumpedProcess(owner.process, threads, ranks=ranks, local=owner.local)


def _thread(thread: _OpenThread, is_main: bool) -> Thread:
    frames = tuple(reversed(thread.frames))
    if thread.collects:
        frames += (_COLLECTION,)
    return Thread(MAIN if is_main else thread.name or UNNAMED, thread.tid, frames)
