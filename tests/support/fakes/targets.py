"""Real processes for the agent's tests: each says that it is ready through a pipe, and ends when the test lets go of it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

from hangdog_agent.confinement import confined_children as started
from hangdog_agent.confinement import credentials
from hangdog_agent.discovery.discover import Process
from hangdog_agent.procfs import Proc

#: Says "ready" and waits in `stuck_here` until its input is closed.
WAIT = """
import os
def stuck_here():
    os.write(1, b"ready\\n")
    os.read(0, 1)
stuck_here()
"""
#: Works for ever, and sleeps now and then.
WORK = """
import os, time
os.write(1, b"ready\\n")
while True:
    time.sleep(0.02)
    sum(range(500_000))
"""
#: Traces the process named by its first argument, until its input is closed; the second says how (see ptrace(2)).
TRACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
seize, attach = 0x4206, 16
pid = int(sys.argv[1])
if libc.ptrace({"seize": seize, "attach": attach}[sys.argv[2]], pid, None, None) != 0:
    os.write(1, b"refused\\n")
    sys.exit()
if sys.argv[2] == "attach":
    os.waitpid(pid, 0)
os.write(1, b"ready\\n")
os.read(0, 1)
"""
#: A parent is in uninterruptible sleep while its vfork child has neither ended nor run a program.
VFORK = """
#include <unistd.h>
void hold(int fd) { char c; if (vfork() == 0) { write(1, "ready\\n", 6); read(fd, &c, 1); _exit(0); } }
"""
#: Goes into uninterruptible sleep in its main thread, or in another one.
SLEEP_IN_KERNEL = """
import ctypes, sys, threading
hold = ctypes.CDLL(sys.argv[1]).hold
def stuck_here():
    hold(0)
if sys.argv[2] == "main":
    stuck_here()
else:
    thread = threading.Thread(target=stuck_here)
    thread.start()
    thread.join()
"""

#: Two calls that look alike in Python: one takes a lock it holds already, the other waits for a peer.
EXCHANGE = """
#include <poll.h>
#include <pthread.h>
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
__attribute__((noinline)) void take_lock(void) { pthread_mutex_lock(&held); pthread_mutex_lock(&held); }
__attribute__((noinline)) void receive(int fd) { struct pollfd one = {fd, POLLIN, 0}; poll(&one, 1, -1); }
void exchange(int locked, int fd) { if (locked) take_lock(); else receive(fd); }
"""
#: Says "ready" and stays in that call, locked if its second argument is 1; ends when its input is closed.
EXCHANGING = """
import ctypes, os, socket, sys, threading
library = ctypes.CDLL(sys.argv[1])
ours, theirs = socket.socketpair()
def step():
    library.exchange(int(sys.argv[2]), ours.fileno())
def end():
    os.read(0, 1)
    os._exit(0)
threading.Thread(target=end, daemon=True).start()
os.write(1, b"ready\\n")
step()
"""

proc = Proc()


@contextlib.contextmanager
def running(
    program: str,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    command: Sequence[str] = (),
    says: bytes = b"ready",
    settles: bool = True,
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that runs `program`, once it has said so and sleeps; killed and reaped afterwards, stopped or not.

    One that does not settle is at work all the time.
    """
    call = [*command, sys.executable, "-I", "-c", program, *arguments]
    with subprocess.Popen(
        call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **(environ or {})}
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == says
            if settles:
                until(lambda: letter(process.pid) in ("S", "D"))  # it speaks a moment before it goes to sleep
            yield process
        finally:
            process.kill()


def row(process: subprocess.Popen[bytes] | int, python: bool = True) -> Process:
    """A process as discovery would have found it."""
    pid = process if isinstance(process, int) else process.pid
    stat = proc.stat(pid)
    assert stat is not None
    return Process(pid, stat.parent, stat.started, stat.state, stat.comm, python, proc.arguments(pid), {})


def letter(pid: int) -> str:
    """The state letter of a process, empty when it is gone."""
    stat = proc.stat(pid)
    return stat.state if stat else ""


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stops a child of ours, and returns when it is stopped."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def end(process: subprocess.Popen[bytes], reap: bool = True) -> None:
    """Ends a child of ours, and returns when it is gone; or, with `reap=False`, when it is a zombie."""
    process.kill()
    if reap:
        process.wait()
    else:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def holder(folder: Path) -> Path | None:
    """The library that puts its caller into uninterruptible sleep; None where no C compiler is."""
    return compiled(folder, "hold", VFORK)


def compiled(folder: Path, name: str, program: str) -> Path | None:
    """A library made of a program in C; None where no C compiler is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(program)
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", library, source, "-lpthread"], check=True)
    return library


def program(folder: Path, name: str, source: str) -> Path | None:
    """A program in C; None where no C compiler is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    written, made = folder / f"{name}.c", folder / name
    written.write_text(source)
    subprocess.run([compiler, "-w", "-o", made, written], check=True)
    return made


def children() -> dict[int, str]:
    """Our own children and their state letters."""
    found: dict[int, str] = {}
    for tid in proc.tids(os.getpid()):
        with contextlib.suppress(OSError):
            for word in Path(f"/proc/self/task/{tid}/children").read_text().split():
                found[int(word)] = letter(int(word))
    return found


def until(reached: Callable[[], bool], within_s: float = 30.0) -> None:
    """Waits for what no pipe can tell, such as a state of the kernel's; fails when it is not reached."""
    pause = threading.Event()
    for _ in range(int(within_s / 0.01)):
        if reached():
            return
        pause.wait(0.01)
    raise AssertionError(f"not reached within {within_s:g} s")


class Sampler:
    """Sees the states that processes are in, as fast as it can look."""

    def __init__(self, *processes: subprocess.Popen[bytes]) -> None:
        self.seen: set[str] = set()
        self.times = 0
        self._pids = [process.pid for process in processes]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.is_set():
            self.seen.update(map(letter, self._pids))
            self.times += 1


def note(calls: Path, words: str = "$*") -> str:
    """A line of a shell script that notes its call as a link in `calls`: a tool may write to no file."""
    return f'ln -s "{words}" "$(mktemp -u {calls}/$(date +%s%N).XXXXXX)"'


def recording_calls(fake: Path, calls: Path, words: str) -> None:
    """Writes a program that fails with these words, and notes each call."""
    calls.mkdir()
    fake.write_text(f'#!/bin/sh\n{note(calls)}\necho "{words}" >&2\nexit 1\n')
    fake.chmod(0o755)


def recorded_calls(calls: Path) -> list[str]:
    """The arguments of each call, in their order."""
    return [os.readlink(link) for link in sorted(calls.iterdir())]


def run_tools_as_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools run as a stranger to every trainer, without CAP_SYS_PTRACE, as those of an agent that lacks the rights."""
    monkeypatch.setattr(started, "SYS_PTRACE", 63)
    monkeypatch.setattr(credentials, "of_its_own", lambda *_: credentials.Credentials(65534, 65534))
