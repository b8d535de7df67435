"""Runs the members of a test under a warden, so that none of them, nor anything they start, outlives the deadline."""

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hangdog_agent.discovery.environ_names import DIAGNOSIS
from hangdog_agent.machine_tests.members import Ended, GroupMember, MemberEnd, Ran
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import Limits

#: What a member may say; a report of ours has some ten kilobytes, DCGM's of 16 GPUs some hundred.
STDOUT_BYTES = 1 << 20
#: What the others are given to say why they wait once one has failed. Gloo notices a lost peer at once.
LINGER_S = 5.0
#: The warden needs this long beyond the deadline to kill and to tell; one that takes longer is itself stopped or stuck.
_GRACE_S = 4.0
#: How often a wait looks whether the agent is being stopped.
_LOOK_UP_S = 0.2
#: Names everybody who belongs to one run, for the day on which the warden itself is killed, and for the agent's census.
_MARK = DIAGNOSIS
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
#: Bytes of the warden's answer for each byte of a member's: JSON writes a control character as six.
_ESCAPED = 6


def run(
    members: Sequence[GroupMember],
    deadline_s: float,
    stdout_bytes: int = STDOUT_BYTES,
    linger_s: float = LINGER_S,
    stop: threading.Event | None = None,
) -> Ran:
    """Runs `members` at once for at most `deadline_s` seconds; then all of them, and all they started, are killed and reaped.

    Where one fails the others get `linger_s` more. `stop`, once set, ends the run early. Raises nothing: see Ran.
    """
    began = time.monotonic()
    mark = secrets.token_hex(8)
    plan = {
        "deadline_s": deadline_s,
        "linger_s": linger_s,
        "stdout_bytes": stdout_bytes,
        "members": [
            {
                "name": one.name,
                "command": one.command,
                "environ": {**one.environ, _MARK: mark},
                "cwd": one.folder,
                "chatty": one.chatty,
            }
            for one in members
        ],
    }
    most = len(members) * _ESCAPED * (stdout_bytes + (64 << 10))
    answer, why = _ask(json.dumps(plan).encode() + b"\n", mark, began + deadline_s + _GRACE_S, most, stop)
    seconds = time.monotonic() - began
    ended = _ended(answer)
    if len(ended) != len(members):
        killed = sweep(mark)
        how = MemberEnd.ABANDONED if stop is not None and stop.is_set() else MemberEnd.DEADLINE
        return Ran(tuple(Ended(one.name, how, seconds=seconds, why=why) for one in members), seconds, (), killed)
    left = answer.get("left")
    pids = tuple(pid for one in (left if isinstance(left, list) else ()) if (pid := int_of(one)) is not None)
    return Ran(ended, seconds, pids, int_of(answer.get("strays")) or 0)


def sweep(mark: str) -> int:
    """Kills everybody who carries the mark of a run in the environment; answers how many.

    It takes `_GRACE_S` at most: whoever forks and ends faster than we look could keep it at work for ever.
    """
    wanted = f"{_MARK}={mark}".encode()
    killed: set[int] = set()
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until:
        found = set()
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.add(int(entry))
        fresh = found - killed
        if not fresh:  # those of before die by themselves now, or never
            return len(killed)
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= fresh
    return len(killed)


def _ask(
    plan: bytes, mark: str, until: float, most: int, stop: threading.Event | None
) -> tuple[Mapping[str, Any], str]:
    """The warden's document, or an empty one and why."""
    try:
        supervisor = subprocess.Popen(
            (sys.executable, "-I", "-S", str(_SUPERVISOR)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={_MARK: f"warden of {mark}"},
            start_new_session=True,
        )
    except OSError as error:
        return {}, f"cannot be started: {error.strerror or error}"
    assert supervisor.stdin is not None and supervisor.stdout is not None
    stated = bytearray()
    why = "its warden ended without a word"
    try:
        os.set_blocking(supervisor.stdin.fileno(), False)
        os.set_blocking(supervisor.stdout.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(supervisor.stdout, selectors.EVENT_READ)
            if plan:
                selector.register(supervisor.stdin, selectors.EVENT_WRITE)
            while True:
                left = until - time.monotonic()
                if left <= 0 or len(stated) > most:
                    why = "its warden did not answer either" if left <= 0 else "too long an answer"
                    break
                if stop is not None and stop.is_set() and not supervisor.stdin.closed:
                    until = min(until, time.monotonic() + _GRACE_S)
                    if plan:
                        selector.unregister(supervisor.stdin)
                    supervisor.stdin.close()  # it ends everything, and answers
                for key, _ in selector.select(min(left, _LOOK_UP_S)):
                    if key.fileobj is supervisor.stdin:
                        with contextlib.suppress(BrokenPipeError):
                            plan = plan[os.write(key.fd, plan) :]
                            if plan:
                                continue
                        selector.unregister(supervisor.stdin)
                        plan = b""
                    else:
                        part = os.read(key.fd, 1 << 16)
                        if not part:
                            return _document(bytes(stated)), why
                        stated += part
        return {}, why
    finally:
        with contextlib.suppress(OSError):
            supervisor.stdin.close()
        supervisor.stdout.close()
        _end(supervisor, until)


def _end(supervisor: subprocess.Popen[bytes], until: float) -> None:
    """Waits for its end, which comes of itself once nobody listens; then kills it."""
    try:
        supervisor.wait(max(0.0, min(_GRACE_S, until - time.monotonic())))
    except subprocess.TimeoutExpired:
        supervisor.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.wait(_GRACE_S)


def _document(stated: bytes) -> Mapping[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(stated)
        if isinstance(document, dict):
            return document
    return {}


def _ended(answer: Mapping[str, Any]) -> tuple[Ended, ...]:
    members = answer.get("members")
    limits = Limits(text=STDOUT_BYTES * _ESCAPED)
    return tuple(
        Ended(
            one["name"],
            MemberEnd(one["ended"]),
            one["status"],
            text_of(one["state"]),
            one["seconds"],
            one["stdout"][: limits.text],
            one["stderr"][: limits.text],
            text_of(one["why"]),
        )
        for one in (members if isinstance(members, list) else ())
    )
