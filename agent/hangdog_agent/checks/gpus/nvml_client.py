"""Keeps the child that asks NVML: asks with a deadline, kills what does not answer, leaves behind what does not die."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.confinement.confined_children import Child, ChildLimits
from hangdog_agent.confinement.credentials import CredentialsRefused
from hangdog_agent.procfs import Proc

#: One sweep of 16 GPUs takes some 20 KiB.
_MOST_BYTES = 1 << 20
#: A killed process dies at once, unless the driver holds it inside the kernel.
_DEATH_S = 0.5
#: How often a wait looks whether the agent is being stopped.
_LOOK_UP_S = 0.2
#: How prlimit(1) ends where a program cannot be run, or is not there.
_NOT_STARTED = (126, 127)
_CHILD = (sys.executable, "-I", "-B", "-m", "hangdog_agent.checks.gpus.nvml_process")


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """A sweep's document, or why there is none; `blown`: NVML did not answer in time, `where` its child stood then."""

    document: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    blown: bool = False
    where: str = ""


class Sweeper:
    """The child, started when it is asked first. Only `close` may be called from another thread."""

    def __init__(
        self, settings: CheckSettings, command: Sequence[str] = _CHILD, environ: Mapping[str, str] | None = None
    ) -> None:
        self._settings = settings
        self._command = _bounded(command)
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._abandoned: list[subprocess.Popen[bytes]] = []
        self._closing = threading.Event()

    @property
    def abandoned(self) -> tuple[int, ...]:
        """Children that were killed and have not died: the driver holds them."""
        self._abandoned = [process for process in self._abandoned if process.poll() is None]
        return tuple(process.pid for process in self._abandoned)

    def ask(self, full: bool) -> NvmlAnswer:
        """One sweep; its deadline is longer where NVML has to be started first."""
        if self._closing.is_set():
            return NvmlAnswer(why="the agent is being stopped")
        left_behind = self.abandoned
        if len(left_behind) >= self._settings.nvml_abandoned:
            why = (
                f"{len(left_behind)} probes of NVML are held by the driver and cannot be killed; no further one is sent"
            )
            return NvmlAnswer(why=why, blown=True)
        deadline_s = self._settings.nvml_answer_s if self._process else self._settings.nvml_start_s
        try:
            process = self._process = self._process or self._start()
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it ended before it was asked: its status says why
                process.stdin.write(b"full\n" if full else b"light\n")
                process.stdin.flush()
        except OSError as error:
            self.let_go()
            return NvmlAnswer(why=f"the child that asks NVML cannot be started: {error}")
        line, blown = self._line(process, time.monotonic() + deadline_s)
        if line is None:
            where = _where(process.pid) if blown else ""
            if not blown:  # it closed its output: it is about to end by itself
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_DEATH_S)
            status = self._end(process)
            why = f"no answer within {deadline_s:g} s" if blown else f"its child ended with status {status}"
            if status in _NOT_STARTED:
                why = "the child that asks NVML cannot be started"
            return NvmlAnswer(why=why, blown=blown, where=where)
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            self._end(process)
            return NvmlAnswer(why="its child answers no document")
        return NvmlAnswer(document)

    def let_go(self) -> None:
        """Ends the child, and with it this machine's last use of NVML by us; the next sweep starts another."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()  # it ends when its input ends
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_DEATH_S)
        self._end(process)

    def close(self) -> None:
        """Ends the child, also while it is being asked."""
        self._closing.set()
        process = self._process
        if process is not None:
            self._end(process)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ if self._environ is None else self._environ),
            start_new_session=True,
        )

    def _line(self, process: subprocess.Popen[bytes], until: float) -> tuple[bytes | None, bool]:
        """A line of the child's output, or None and whether the deadline was the reason."""
        assert process.stdout is not None
        read = bytearray()
        with contextlib.suppress(OSError, ValueError), selectors.DefaultSelector() as selector:  # closed meanwhile
            fd = process.stdout.fileno()
            selector.register(fd, selectors.EVENT_READ)
            while not self._closing.is_set() and len(read) <= _MOST_BYTES:
                left = until - time.monotonic()
                if left <= 0:
                    return None, True
                if not selector.select(min(left, _LOOK_UP_S)):
                    continue
                part = os.read(fd, 1 << 16)
                read += part
                if not part or read.endswith(b"\n"):
                    return (bytes(read) if part else None), False
        return None, False

    def _end(self, process: subprocess.Popen[bytes]) -> int | None:
        """Kills and reaps a child, or remembers that it does not die."""
        self._process = None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        try:
            return process.wait(_DEATH_S)
        except subprocess.TimeoutExpired:
            self._abandoned.append(process)
            return None


def _bounded(command: Sequence[str]) -> Sequence[str]:
    """The command within the limits of tools; it reads nothing of a trainer's, so that it may run without them, too."""
    try:
        return Child(ChildLimits(address_bytes=0, data_bytes=0)).command(command, None)
    except CredentialsRefused:
        return command


def _where(pid: int) -> str:
    """Where a process stands that does not answer: its state, and the kernel function it waits in."""
    proc = Proc()
    stat = proc.stat(pid)
    if stat is None:
        return ""
    wchan = proc.wchan(pid)
    return f"its child is in state {stat.state}" + (f", in {wchan}" if wchan else "")
