"""Reads a trainer with its native frames, which holds it for half a second: only one that stands still, and that may be held.

The server asks for it where it decides something. Whether it is safe is decided here, at the last moment.
"""

import time
from collections.abc import Sequence

from hangdog_agent.capture import process_condition
from hangdog_agent.capture.process_capture import CapturedProcess, Tools, gone, state_of
from hangdog_agent.discovery.cpu_activity import CpuActivity, mode, sample_cpu
from hangdog_agent.discovery.discover import Process
from hangdog_models.stack import Frame, Missing, Reason, Thread
from hangdog_models.training import training_thread

#: Its stack must be the same so long apart, and its CPU activity must have stopped meanwhile. Seconds.
STANDS_S = 0.5


def look(process: Process, tools: Tools) -> CapturedProcess:
    """Its stacks with native frames; where it may not be held, or that failed, its Python stacks and the reason.

    Takes at most the settings' `native_s`, two nonblocking deadlines, and a moment.
    """
    before = process_condition.read(tools.proc, process.pid)
    if before is None or before.stat.started != process.started:
        return CapturedProcess(missing=gone(process, before))
    state = state_of(process, before, tools.proc)
    spy, settings = tools.pyspy, tools.settings
    if isinstance(spy, Missing):
        return CapturedProcess(state=state, missing=spy)
    hindered = _hindered(process, before, settings.native)
    if hindered is not None:
        return CapturedProcess(state=state, missing=hindered)
    stands = _if_still(process, tools)
    if isinstance(stands, Missing):
        return CapturedProcess(state=state, missing=stands)
    now = process_condition.read(tools.proc, process.pid)  # it may have come to be otherwise meanwhile
    if now is None or now.stat.started != process.started:
        return CapturedProcess(missing=gone(process, now))
    if (hindered := _hindered(process, now, settings.native)) is not None:
        return CapturedProcess(stands, state, hindered)
    before_this = tools.held.take(process, time.monotonic(), settings.native_again_s)
    if before_this is not None:
        why = _unsafe(f"was held {before_this.ago_s:.0f} s ago, and is not within {settings.native_again_s:g} s")
        python = tuple(frame for frame in _main(process, before_this.threads) if not frame.native)
        # at the same lines still: what was read then says what a second hold would
        return CapturedProcess(before_this.threads if python == _main(process, stands) else stands, state, why)
    read = spy.dump(process.pid, settings.native_s, settings, blocking=True, stop=tools.stop, native=True)
    after = process_condition.read(tools.proc, process.pid)
    if after is None or after.stat.started != process.started:
        return CapturedProcess(missing=gone(process, after))
    state = state_of(process, after, tools.proc)
    if isinstance(read, Missing):
        return CapturedProcess(stands, state, read)
    tools.held.read(process, read)
    return CapturedProcess(read, state)


def _hindered(process: Process, now: process_condition.Condition, native: int) -> Missing | None:
    """Why it may not be held at this moment."""
    if not native:
        return _unsafe("native stacks are turned off on this machine (native=0)")
    if not process.python:
        return Missing(Reason.NOT_PYTHON, f"runs {now.stat.comm}")
    if len(now.pids) > 1:
        return _unsafe("it lives in another pid namespace, where native stacks cannot be read from outside")
    if now.stat.state in "ZX" or not now.may_be_stopped:
        return process_condition.explain(now, now) or _unsafe(
            f"a thread is in state {''.join(sorted(set(now.states.values())))}"
        )
    return None


def _if_still(process: Process, tools: Tools) -> tuple[Thread, ...] | Missing:
    """Its stacks, if its main thread stays where it is for a moment, without holding it."""
    first = _light_sample(process, tools)
    if isinstance(first, Missing):
        return first
    trains = training_thread(first, process.pid)
    tid = trains.tid if trains is not None else None
    cpu_activity = sample_cpu(tools.proc, process.pid, time.monotonic(), tid)
    tools.stop.wait(STANDS_S)
    later = sample_cpu(tools.proc, process.pid, time.monotonic(), tid)
    if cpu_activity is not None and later is not None and mode(cpu_activity, later) is CpuActivity.ACTIVE:
        return _unsafe("it gets on: its main thread works and waits in turn")
    second = _light_sample(process, tools)
    if isinstance(second, Missing):
        return second
    if not _main(process, first) or _main(process, first) != _main(process, second):
        return _unsafe("it gets on: its main thread moved while it was looked at")
    return second


def _light_sample(process: Process, tools: Tools) -> tuple[Thread, ...] | Missing:
    settings = tools.settings
    assert not isinstance(tools.pyspy, Missing)
    return tools.pyspy.dump(process.pid, settings.nonblocking_s, settings, stop=tools.stop)


def _main(process: Process, threads: Sequence[Thread]) -> tuple[Frame, ...]:
    thread = training_thread(threads, process.pid)
    return thread.frames if thread is not None else ()


def _unsafe(words: str) -> Missing:
    return Missing(Reason.NOT_SAFE, words)
