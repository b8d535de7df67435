"""Reads native stacks with what else is installed, pystack or gdb, where py-spy cannot: they hold the process meanwhile."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hangdog_agent.capture import process_condition
from hangdog_agent.capture.process_capture import CapturedProcess, Tools
from hangdog_agent.confinement import confined_children, credentials
from hangdog_agent.confinement.confined_children import ChildLimits
from hangdog_agent.confinement.credentials import CredentialsRefused
from hangdog_agent.confinement.subprocesses import run
from hangdog_agent.discovery.discover import Process
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.stacks import pystack
from hangdog_models.reading.stacks.debuggers import gdb
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.reading.stacks.merge_native import merge_native
from hangdog_models.stack import Reason, Thread

#: After which of py-spy's failures another tool may do better: after the others it meets the same.
_ANOTHER_MAY = frozenset({Reason.TOOL_FAILED, Reason.TIMED_OUT})
#: gdb reads the symbols of libtorch in some seconds, 18 on a machine that is overloaded; the process is held all the while.
_DEADLINE_S = 30.0
_OUTPUT_BYTES = 16 << 20
_LIMITS = ChildLimits(address_bytes=64 << 30, data_bytes=4 << 30)
#: Nothing of the user's or the program's folders is run, and no symbols are fetched over a network.
_GDB = (
    *("-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"),
    *("-ex", "set print frame-arguments none", "-ex", "thread apply all bt"),
)


@dataclass(frozen=True, slots=True)
class NativeTool:
    """A program that shows native stacks: its arguments before the pid, and how what it prints is read."""

    name: str
    arguments: tuple[str, ...]
    read: Callable[[str], Sequence[DumpedProcess]]


TOOLS = (NativeTool("pystack", ("remote", "--native"), pystack.read), NativeTool("gdb", (*_GDB, "-p"), gdb.read))


def look(process: Process, failed: CapturedProcess, tools: Tools) -> tuple[str, tuple[Thread, ...]] | None:
    """The tool that could read it and the stacks; None where none is installed, may hold the process, or can.

    `failed` is what py-spy gave: the Python stacks, and why it has no native ones.
    """
    if failed.missing is None or failed.missing.reason not in _ANOTHER_MAY or not failed.threads:
        return None
    for tool in TOOLS:
        program = _program(tool.name)
        before = process_condition.read(tools.proc, process.pid)
        if program is None or before is None or before.stat.started != process.started:
            continue
        if not before.may_be_stopped or len(before.pids) > 1 or before.stat.state in "ZX":
            return None
        threads = _read(tool, program, process, failed.threads, tools)
        _let_go(process, tools)
        if threads:
            return tool.name, threads
    return None


def _read(
    tool: NativeTool, program: str, process: Process, python: tuple[Thread, ...], tools: Tools
) -> tuple[Thread, ...]:
    try:
        child = confined_children.tool(credentials.of_its_own(process.pid), _LIMITS)
    except (CredentialsRefused, ProcessLookupError):
        return ()
    command = (program, *tool.arguments, str(process.pid))
    outcome = run(command, _DEADLINE_S, _OUTPUT_BYTES, environ={"LC_ALL": "C.UTF-8"}, stop=tools.stop, child=child)
    try:
        dumped = tool.read(outcome.stdout.decode("utf-8", "replace")) if outcome.status == 0 else ()
    except UnreadableEvidence:
        return ()
    if len(dumped) != 1:
        return ()
    if any(not frame.native for thread in dumped[0].threads for frame in thread.frames):
        return dumped[0].threads
    whole = merge_native(DumpedProcess(process.pid, python), dumped[0])
    return whole.threads if whole is not None else ()


def _let_go(process: Process, tools: Tools) -> None:
    """Lets a process go on that was not stopped before: a tool that is killed as it attaches leaves its SIGSTOP behind."""
    after = process_condition.read(tools.proc, process.pid)
    if (
        after is not None
        and after.stat.started == process.started
        and not after.tracer
        and "T" in after.states.values()
    ):
        os.kill(process.pid, signal.SIGCONT)


def _program(name: str) -> str | None:
    """Beside our own Python, or where the system's tools lie; never anywhere else on PATH."""
    return shutil.which(name, path=f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/local/bin")
