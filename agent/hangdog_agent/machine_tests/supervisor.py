"""The child that keeps a test: starts its members and, when their time is up, ends them and all that they ever started.

It is a program of its own for two reasons. What a member leaves behind, in whatever session, comes back to it (it is a child
subreaper), so that nothing is lost sight of. And its input stays open for as long as somebody wants the answer: whoever
started it may be killed, and still nothing is left running. Standard library only: it starts in milliseconds.
"""

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
#: Between two looks whether somebody ended; a death is seen no later.
_LOOK_S = 0.02
#: The kernel carries out SIGKILL within milliseconds, unless a driver holds the process; then we say so and go.
_DEATH_S = 2.0
#: Between two rounds of killing: whoever forks and ends all the time must not get far meanwhile.
_AGAIN_S = 0.001
#: Of what a member says on stderr its last words explain a failure.
_STDERR_BYTES = 8 << 10
#: Reads of one pipe in a row: one that floods us must not keep us from the others.
_READS = 16


class _SupervisedMember:
    """One process under test, and what it said."""

    def __init__(self, wanted: dict[str, Any], most: int) -> None:
        self.name: str = wanted["name"]
        self.most = most
        self.began = time.monotonic()
        self.out, self.errors = bytearray(), bytearray()
        self.pipes: dict[int, bytearray] = {}
        self.ended: dict[str, Any] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self.process = subprocess.Popen(
                wanted["command"],
                env=wanted["environ"],
                cwd=wanted["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.end("not started", why=f"{getattr(error, 'strerror', None) or error}")
            return
        out = self.errors if wanted["chatty"] else self.out
        for pipe, kept in ((self.process.stdout, out), (self.process.stderr, self.errors)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self.pipes[pipe.fileno()] = kept

    def hear(self, fd: int) -> bool:
        """Takes what it said through one of its pipes; answers whether more may come."""
        kept = self.pipes[fd]
        for _ in range(_READS):
            try:
                part = os.read(fd, 1 << 16)
            except BlockingIOError:
                return True
            if not part:
                return False
            kept += part
            if kept is self.errors:
                del kept[:-_STDERR_BYTES]
            elif len(kept) > self.most:
                del kept[self.most :]
                self.end("flooded", why=f"more than {self.most} bytes of output")
                return False
        return True

    def hear_all(self) -> None:
        for fd in self.pipes:
            self.hear(fd)

    def end(self, how: str, status: int | None = None, state: str = "", why: str = "") -> None:
        """Notes how it ended, the first time only."""
        if self.ended is None:
            self.ended = {
                "name": self.name,
                "ended": how,
                "status": status,
                "state": state,
                "why": why,
                "seconds": time.monotonic() - self.began,
            }

    def document(self) -> dict[str, Any]:
        assert self.ended is not None
        out, errors = self.out.decode("utf-8", "replace"), self.errors.decode("utf-8", "replace")
        return {**self.ended, "stdout": out, "stderr": errors}


class _Supervisor:
    def __init__(self, plan: dict[str, Any]) -> None:
        self.until = time.monotonic() + plan["deadline_s"]
        self.linger_s: float = plan["linger_s"]
        self.members = [_SupervisedMember(wanted, plan["stdout_bytes"]) for wanted in plan["members"]]
        self.by_pid = {member.process.pid: member for member in self.members if member.process is not None}
        self.why = "deadline"
        if any(member.ended for member in self.members):
            self._hasten()

    def follow(self) -> None:
        """Until all have ended, or the time is up, or nobody wants to know any more."""
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ, None)
            for member in self.by_pid.values():
                for fd in member.pipes:
                    selector.register(fd, selectors.EVENT_READ, member)
            while any(member.ended is None for member in self.members):
                left = self.until - time.monotonic()
                if left <= 0:
                    return
                for key, _ in selector.select(min(left, _LOOK_S)):
                    if key.data is None and not os.read(0, 1 << 16):
                        self.why = "abandoned"
                        return
                    if key.data is not None and not key.data.hear(key.fd):
                        selector.unregister(key.fd)
                        if key.data.ended is not None:  # it flooded us
                            self._kill(key.data)
                            self._hasten()
                self._reap()

    def finish(self) -> dict[str, Any]:
        """Leaves nothing behind, and tells."""
        silent = [member for member in self.members if member.ended is None]
        states = {member.name: _state(member.process.pid) for member in silent if member.process is not None}
        strays = len(_living(_family())) - len(silent)
        for member in silent:
            member.hear_all()
            member.end(self.why, state=states.get(member.name, ""))
        left = self._end_all()
        for member in self.members:
            member.hear_all()
        return {"members": [member.document() for member in self.members], "left": left, "strays": max(0, strays)}

    def _end_all(self) -> list[int]:
        """Kills until nobody is left, not even dead: one that forks and ends all the time is mostly seen as its own remains.

        Whole groups at once, whoever forks meanwhile included; remains that are not collected yet keep their group's number
        from being another's.
        """
        until = time.monotonic() + _DEATH_S
        while family := _family():
            if time.monotonic() >= until:
                return _living(family)
            for group in {one.group for one in family.values()} - {os.getpgid(0)}:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
            for pid in _living(family):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(_AGAIN_S)
        return []

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, code = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                member = self.by_pid.get(pid)
                if member is not None and member.process is not None:
                    status = os.waitstatus_to_exitcode(code)
                    member.process.returncode = status
                    member.hear_all()
                    member.end("itself", status=status)
                    if status:
                        self._hasten()

    def _hasten(self) -> None:
        """One that failed keeps the others waiting for ever: they are given a moment to say so."""
        soon = time.monotonic() + self.linger_s
        if soon < self.until:
            self.until, self.why = soon, "with the others"

    def _kill(self, member: _SupervisedMember) -> None:
        if member.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(member.process.pid, signal.SIGKILL)


class _Process(NamedTuple):
    parent: int
    group: int
    alive: bool


def _family() -> dict[int, _Process]:
    """Everybody who descends from this process, the dead that nobody has collected included; no new session leads out of it."""
    everybody: dict[int, _Process] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
                everybody[int(entry)] = _Process(int(words[1]), int(words[2]), words[0] not in (b"Z", b"X"))
    found: set[int] = set()
    layer = {os.getpid()}
    while layer:
        layer = {pid for pid, one in everybody.items() if one.parent in layer} - found
        found |= layer
    return {pid: everybody[pid] for pid in found}


def _living(family: dict[int, _Process]) -> list[int]:
    return sorted(pid for pid, one in family.items() if one.alive)


def _state(pid: int) -> str:
    """The letter of its state and where it sleeps in the kernel: `T`, `R`, `D nv_wait`."""
    with contextlib.suppress(OSError, IndexError):
        letter = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode("ascii")
        where = ""
        with contextlib.suppress(OSError):
            where = Path(f"/proc/{pid}/wchan").read_text("ascii", "replace").strip("0\x00\n")
        return f"{letter} {where}".strip()
    return ""


def main() -> None:
    """Reads the plan, follows it, and writes one document; ends with everything it started."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    plan = bytearray()
    while not plan.endswith(b"\n"):
        part = os.read(0, 1 << 16)
        if not part:
            return
        plan += part
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = _Supervisor(json.loads(plan))
    try:
        supervisor.follow()
    finally:
        document = supervisor.finish()
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main()
