"""Runs another program so that it can neither outlive its deadline, nor flood us, nor keep a thread of ours waiting."""

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hangdog_agent.confinement import confined_children, syscalls
from hangdog_agent.confinement.confined_children import Child
from hangdog_agent.confinement.credentials import CredentialsRefused

_DEADLINE = "deadline"
_STOPPED = "the agent is being stopped, killed"
#: How often a wait looks whether the agent is being stopped.
_LOOK_UP_S = 0.2
#: A killed process dies at once, unless the kernel itself holds it; then we leave it to be reaped by a later call.
_DEATH_S = 1.0
#: What a tool says to explain a failure fits many times over.
_STDERR_BYTES = 64 << 10

_unreaped: list[subprocess.Popen[bytes]] = []
_unreaped_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """How a run ended: `status` is None when we killed it or could not start it, and `why` says which.

    `refused`: it was not started, for it would have had more rights than it may.
    """

    status: int | None
    stdout: bytes = b""
    stderr: str = ""
    why: str = ""
    timed_out: bool = False
    refused: bool = False


def run(
    command: Sequence[str],
    deadline_s: float,
    stdout_bytes: int,
    fds: Sequence[int] = (),
    environ: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    executable: str | None = None,
    child: Child = confined_children.PLAIN,
) -> ProcessOutcome:
    """Runs `command` in a session of its own for at most `deadline_s` seconds, then kills and reaps its whole group.

    If the agent itself is killed meanwhile, the group is killed too. `stdout_bytes` bounds what is read; `stop`, once set,
    ends the run early; `executable` is the program where it is not `command[0]`. Raises nothing: see Outcome.

    `child` says with which user, limits and capabilities; where it may not be so, it is not started.
    """
    _reap_late()
    until = time.monotonic() + deadline_s
    guard: ParentDeathGuard | None = None
    try:
        # a program that runs from memory is called by its descriptor: prlimit cannot give it another name
        if child.limits is not None:
            command, executable = child.command((executable or command[0], *command[1:]), deadline_s), None
        user = child.user()
    except CredentialsRefused as error:
        return ProcessOutcome(None, why=str(error), refused=True)
    try:
        guard = ParentDeathGuard()
        with syscalls.handing_on(child.capabilities):
            process = subprocess.Popen(
                command,
                executable=executable,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(*fds, guard.far),
                env=dict(environ or {}),
                start_new_session=True,
                **user,
            )
    except OSError as error:
        if guard is not None:
            guard.pull()
        return ProcessOutcome(None, why=f"cannot be started: {error.strerror or error}")
    guard.tie(process.pid)
    kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    why = ""
    try:
        why = _follow(process, kept, until, stdout_bytes, stop)
        if not why:
            why = _await_end(process, until, stop)
    finally:
        _end(process, guard, killed=bool(why))
    stdout, stderr = bytes(kept["stdout"]), kept["stderr"].decode("utf-8", "replace")
    if why == _DEADLINE:
        return ProcessOutcome(None, stdout, stderr, f"no answer within {deadline_s:g} s, killed", timed_out=True)
    if why:
        return ProcessOutcome(None, stdout, stderr, why)
    return ProcessOutcome(process.returncode, stdout, stderr)


def _follow(
    process: subprocess.Popen[bytes],
    kept: dict[str, bytearray],
    until: float,
    stdout_bytes: int,
    stop: threading.Event | None,
) -> str:
    """Reads both pipes to their ends; answers why not, or nothing."""
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe.fileno(), selectors.EVENT_READ, name)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                return _DEADLINE
            if stop is not None and stop.is_set():
                return _STOPPED
            for key, _ in selector.select(min(left, _LOOK_UP_S)):
                part = os.read(key.fd, 1 << 16)
                if not part:
                    selector.unregister(key.fd)
                elif key.data == "stderr":
                    kept["stderr"] += part[: _STDERR_BYTES - len(kept["stderr"])]
                elif len(kept["stdout"]) + len(part) > stdout_bytes:
                    return f"more than {stdout_bytes} bytes of output, killed"
                else:
                    kept["stdout"] += part
    return ""


def _await_end(process: subprocess.Popen[bytes], until: float, stop: threading.Event | None) -> str:
    """Waits for a process that has closed its pipes; answers why it had to be killed, or nothing."""
    while (left := until - time.monotonic()) > 0:
        if stop is not None and stop.is_set():
            return _STOPPED
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, _LOOK_UP_S))
            return ""
    return _DEADLINE


def _end(process: subprocess.Popen[bytes], guard: "ParentDeathGuard", killed: bool) -> None:
    """Leaves nothing behind: kills the process's group, of which it may be long gone itself, reaps it, closes its pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if killed or process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    guard.pull()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_DEATH_S)
    except subprocess.TimeoutExpired:
        with _unreaped_lock:
            _unreaped.append(process)


def _reap_late() -> None:
    with _unreaped_lock:
        _unreaped[:] = [process for process in _unreaped if process.poll() is None]


class ParentDeathGuard:
    """A pipe that only this agent can write to: once nobody can, the kernel kills the group of processes tied to it.

    A tool that has attached and hangs would else outlive an agent that is killed, and keep a trainer stopped for ever.
    (PR_SET_PDEATHSIG would need a program of ours between fork and exec; a signal upon the end of a pipe, fcntl(2), does not.)
    """

    def __init__(self) -> None:
        #: Must be inherited: the pipe lives for as long as somebody holds this end.
        self.far, self._near = os.pipe()

    def tie(self, group: int) -> None:
        """Ties a group of processes to it. The kernel keeps the group itself, not its number, which may be used again."""
        with contextlib.suppress(OSError):  # a sandbox that plays a kernel may not know this
            fcntl.fcntl(self.far, fcntl.F_SETOWN, -group)
            fcntl.fcntl(self.far, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self.far, fcntl.F_SETFL, os.O_ASYNC)

    def pull(self) -> None:
        """Kills what is left of the group."""
        os.close(self._near)
        os.close(self.far)
