"""Looks at one process: the kernel's view first, its stacks without touching it, and attaches only when nothing forbids.

A tracer must never join the hang. A blocking tool that meets a thread stuck in the kernel waits for it for ever, and holds
all other threads stopped meanwhile; so whatever is stuck, stopped or traced is read nonblocking or not at all.
"""

import os
import threading
import time
from dataclasses import dataclass, field

from msgspec import structs

from hangdog_agent.capture import process_condition
from hangdog_agent.capture.native_cooldown import NativeCooldown
from hangdog_agent.capture.process_condition import Condition
from hangdog_agent.capture.pyspy import PySpy
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery import redact
from hangdog_agent.discovery.discover import Process
from hangdog_agent.procfs import Proc
from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.stack import Missing, ProcessState, Reason, Thread
from hangdog_models.training import training_thread

#: Reasons after which trying again is no use: the next try meets the same.
_FINAL = frozenset({Reason.NOT_PERMITTED, Reason.NOT_PYTHON, Reason.EXITED, Reason.TIMED_OUT})
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Tools:
    """What a look needs beside the process: where to read, with what, for how long, and when to give up at once.

    By process, noted by the watch for stalls: `steps`, how often the job's own progress was seen to advance there, and
    `devices`, what its device was seen to do.
    """

    proc: Proc
    pyspy: PySpy | Missing
    settings: CaptureSettings
    stop: threading.Event = field(default_factory=threading.Event)
    held: NativeCooldown = field(default_factory=NativeCooldown)
    steps: dict[tuple[int, int], int] = field(default_factory=dict)
    devices: dict[tuple[int, int], DeviceReadings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CapturedProcess:
    """What a look at one process brought; `threads` and `missing` may stand together."""

    threads: tuple[Thread, ...] = ()
    state: ProcessState | None = None
    missing: Missing | None = None


def look(process: Process, tools: Tools, until: float, *, attach: bool = True) -> CapturedProcess:
    """Captures one process; answers before `until` (of `time.monotonic`), whatever the process or py-spy do.

    Without `attach` it is never stopped, not even where it cannot be read otherwise.

    The process is told by pid and start time: another one that took over the pid is not looked at.
    """
    before = process_condition.read(tools.proc, process.pid)
    if before is None or before.stat.started != process.started:
        return CapturedProcess(missing=gone(process, before))
    steps = tools.steps.get(process.key)
    state = state_of(process, before, tools.proc, steps=steps)
    if before.stat.state in "ZX":
        return CapturedProcess(state=state, missing=process_condition.explain(before, before))
    if not process.python:
        return CapturedProcess(state=state, missing=Missing(Reason.NOT_PYTHON, f"runs {before.stat.comm}"))
    read = _stacks(process, tools, until, attach)
    after = process_condition.read(tools.proc, process.pid)
    threads = () if isinstance(read, Missing) else read
    if after is None:
        return CapturedProcess(threads, state, Missing(Reason.EXITED, "ended while it was looked at"))
    if after.stat.started != process.started:
        return CapturedProcess(missing=gone(process, after))
    threads = _from_outside(threads, after, tools.proc)
    trains = training_thread(threads, process.pid)
    state = state_of(process, after, tools.proc, trains.tid if trains is not None else None, steps)
    hindered = process_condition.explain(before, after)
    if isinstance(read, Missing):
        return CapturedProcess((), state, _weigh(read, hindered))
    return CapturedProcess(threads, state, hindered)


def _stacks(process: Process, tools: Tools, until: float, attach: bool) -> tuple[Thread, ...] | Missing:
    """Nonblocking, a few times; then once blocking if nothing speaks against it at that moment."""
    if isinstance(tools.pyspy, Missing):
        return tools.pyspy
    settings = tools.settings
    read: tuple[Thread, ...] | Missing = Missing(
        Reason.TIMED_OUT, f"the {settings.look_s:g} s of the whole look were over"
    )
    for _ in range(1 + settings.retries):
        left = until - time.monotonic()
        if left <= 0:
            return read
        read = tools.pyspy.dump(process.pid, min(left, settings.nonblocking_s), settings, stop=tools.stop)
        if not isinstance(read, Missing) or read.reason in _FINAL:
            return read
        if read.reason is Reason.MOVED:  # it was read several times
            break
    if not attach:
        return read
    now = process_condition.read(tools.proc, process.pid)
    left = until - time.monotonic()
    if now is None or now.stat.started != process.started or not now.may_be_stopped or left <= 0:
        return read
    attached = tools.pyspy.dump(process.pid, min(left, settings.blocking_s), settings, blocking=True, stop=tools.stop)
    if isinstance(attached, Missing) and attached.reason in (Reason.TRACED, Reason.STOPPED):
        return read  # it came to be so just now, or ptrace is filtered: what nonblocking said is the better answer
    return attached


def _weigh(failed: Missing, hindered: Missing | None) -> Missing:
    """The reason to report of a failed capture: the kernel's where it explains the failure, else the tool's."""
    if (
        failed.reason is Reason.EXITED
    ):  # said of a process that is still here: its program file or memory is out of reach
        failed = Missing(Reason.TOOL_FAILED, failed.message)
    if hindered is None or failed.reason in (Reason.TOOL_MISSING, Reason.NOT_PERMITTED):
        return failed
    return Missing(hindered.reason, f"{hindered.message.removesuffix('; read without attaching')}; {failed.message}")


def gone(process: Process, now: Condition | None) -> Missing:
    """That a process has ended, by what has its pid now."""
    words = (
        f"process {process.pid} has ended"
        if now is None
        else f"process {process.pid} has ended, its pid is another's now"
    )
    return Missing(Reason.EXITED, words)


def state_of(
    process: Process, now: Condition, proc: Proc, tid: int | None = None, steps: int | None = None
) -> ProcessState:
    """The kernel's view of a process, to be sent: of its main thread, or of the thread `tid` where that is the one that trains.

    The arguments of a system call are kept of one that cannot be woken: they tell its file. Of all others they are
    addresses, which no two processes share.
    """
    if tid not in now.states or now.stat.state in "ZX":
        tid = process.pid
    state = now.stat.state if tid == process.pid else now.states[tid]
    syscall = proc.syscall(process.pid, tid)
    ran_ns, _, wakes = proc.schedstat(process.pid, tid) or (0, 0, 0)  # all zero where the kernel does not count
    return ProcessState(
        pid=process.pid,
        state=state,
        wchan=proc.wchan(process.pid, tid),
        syscall=syscall if state == "D" else syscall.partition(" ")[0],
        cpu_s=now.stat.cpu_ticks / _TICKS_PER_S,
        comm=now.stat.comm,
        cmdline=redact.command_line(process.arguments),
        ran_s=ran_ns / 1e9 if wakes else None,
        wakes=wakes or None,
        steps=steps,
    )


def _from_outside(threads: tuple[Thread, ...], now: Condition, proc: Proc) -> tuple[Thread, ...]:
    """Repairs what py-spy says of a process in another pid namespace: it gives inner thread ids, and calls all active."""
    if len(now.pids) < 2:
        return threads
    outer: dict[int, int] = {}
    for tid in now.states:
        status = proc.status(now.stat.pid, tid)
        if status is not None and status.pids:
            outer[status.pids[-1]] = tid
    return tuple(
        structs.replace(
            thread, tid=outer.get(thread.tid, thread.tid), active=now.states.get(outer.get(thread.tid, -1), "") == "R"
        )
        for thread in threads
    )
