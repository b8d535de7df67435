"""Reads the text of `perf script` of a recording with stacks (`perf record -g`): what threads ran when they were sampled."""

import re
from dataclasses import dataclass, field

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import (
    MAIN,
    UNNAMED,
    DumpedProcess,
    check_frames,
    check_threads,
    installed_path,
    lines_of,
)
from hangdog_models.reading.stacks.kernel_stack import KERNEL
from hangdog_models.stack import Frame, Thread

#: `comm  tid [cpu] seconds: period event:`; with `-F +pid` it is `pid/tid`, and a recording of one process has no cpu.
_SAMPLE = re.compile(
    r"(\S.{0,60}?) +(?:(\d{1,18})/ ?)?(\d{1,18}) +(?:\[\d{1,6}\] +)?\d{1,12}\.\d{1,9}: +(?:\d{1,20} +)?([\w:./-]{1,200}?):? *"
)
_FRAME = re.compile(r"\s+[0-9a-f]{1,16} (\S.*) \((.*)\)")
_OFFSET = re.compile(r"\+0x[0-9a-f]{1,16}$")
#: How CPython since 3.12 names its functions for perf (`-X perf`).
_PYTHON = re.compile(r"py::(.*?):([^:]*)")
#: Events that are counted on a processor: a thread in such a sample was running.
_RUNNING = ("cycles", "cpu-cycles", "cpu-clock", "task-clock", "instructions", "ref-cycles")
#: Only a process's first thread begins in these.
_ENTRY = ("_start", "__libc_start_main", "__libc_start_call_main", "Py_BytesMain", "Py_RunMain")

_Task = tuple[int | None, int]


@dataclass(slots=True)
class _Sampled:
    """The last sample of one thread that has frames, innermost first."""

    name: str
    running: bool
    frames: list[Frame] = field(default_factory=list)


def recognises(head: str) -> bool:
    """Whether a text has a sample of perf with a frame in its first lines."""
    sample = False
    for line in lines_of(head):
        if sample and _FRAME.fullmatch(line):
            return True
        sample = not line[:1].isspace() and _SAMPLE.fullmatch(line) is not None
    return False


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of the text, each thread as its last sample shows it."""
    found: dict[_Task, _Sampled] = {}
    task: _Task = (None, 0)
    current: _Sampled | None = None
    for line in lines_of(text):
        if not line[:1].isspace():
            sample = _SAMPLE.fullmatch(line)
            current = _sampled(sample, limits) if sample else None
            task = (int(sample[2]) if sample[2] else None, int(sample[3])) if sample else (None, 0)
        elif current is not None and (frame := _FRAME.fullmatch(line)):
            found[task] = current
            check_threads(len(found), limits)
            current.frames.append(_frame(frame[1], frame[2], limits))
            check_frames(len(current.frames), limits)
    processes: dict[int | None, list[tuple[int, _Sampled]]] = {}
    for (pid, tid), sampled in found.items():
        processes.setdefault(pid, []).append((tid, sampled))
    if not processes:
        raise UnreadableEvidence("not the text of perf script: no sample with a stack in it", code="no-stack")
    return tuple(_process(pid, threads) for pid, threads in processes.items())


def _sampled(sample: re.Match[str], limits: Limits) -> _Sampled:
    event = sample[4].partition(":")[0].strip("/").rpartition("/")[2]  # `cycles:ppp`, `cpu_core/cycles/`
    return _Sampled(text_of(sample[1], limits), event in _RUNNING)


def _frame(symbol: str, library: str, limits: Limits) -> Frame:
    name = _OFFSET.sub("", symbol)
    if python := _PYTHON.fullmatch(name):
        return Frame(text_of(python[1], limits), text_of(installed_path(python[2]), limits))
    if library.startswith("[kernel"):
        return Frame(text_of(name, limits), KERNEL, 0, KERNEL)
    called = "??" if name == "[unknown]" else text_of(name, limits)
    module = "" if library in ("[unknown]", "inlined") else text_of(library.strip("[]"), limits)
    return Frame(called, "", 0, module or "??")


def _process(pid: int | None, threads: list[tuple[int, _Sampled]]) -> DumpedProcess:
    """The threads; the main one is that whose id is the process's, or which alone begins where programs begin."""
    if pid is None:
        entered = [tid for tid, sampled in threads if any(frame.function in _ENTRY for frame in sampled.frames)]
        pid = entered[0] if len(entered) == 1 else None
    native = not any(frame.module is None for _, sampled in threads for frame in sampled.frames)
    return DumpedProcess(
        pid,
        tuple(
            Thread(
                MAIN if tid == pid else sampled.name or UNNAMED,
                tid,
                tuple(reversed(sampled.frames)),
                sampled.running or None,
            )
            for tid, sampled in threads
        ),
        native=native,
    )
