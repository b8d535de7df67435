"""Reads the ends of one user's logs, and when its heartbeats were touched, as a process with that user's rights on files.

Started by readers.py for each user whose trainers are followed. Each line it is given holds wishes; it answers one line each,
in their order, so that the agent sees at which file it hangs. It ends with its input.
"""

import base64
import json
import os
import stat
import sys
from typing import Any

from hangdog_agent.confinement import syscalls
from hangdog_agent.confinement.credentials import Credentials, CredentialsRefused
from hangdog_agent.confinement.pinned_process import PinnedProcess


def main() -> None:
    order = json.loads(sys.argv[1])
    who = Credentials(order["uid"], order["gid"], tuple(order["groups"]))
    try:
        syscalls.become(who, None)
    except CredentialsRefused as error:
        sys.exit(str(error))
    for line in sys.stdin.buffer:
        for wish in json.loads(line):
            answer = _look(order["proc"], who, wish)
            sys.stdout.buffer.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
            sys.stdout.buffer.flush()


def _look(proc: str, who: Credentials, wish: dict[str, Any]) -> dict[str, Any] | None:
    """One file; None where there is none, its user may not read it, or it is anything but a regular file."""
    try:
        handle = _opened(proc, who, wish)
    except (OSError, CredentialsRefused, ValueError):  # ValueError: a path with a zero byte in it
        return None
    try:
        return read(handle, wish)
    except OSError:
        return None
    finally:
        os.close(handle)


def _opened(proc: str, who: Credentials, wish: dict[str, Any]) -> int:
    """An O_PATH descriptor of what a trainer of this user has open, or of what its path leads to."""
    with syscalls.privileged():
        trainer = PinnedProcess(proc, wish["pid"], wish["started"])
        try:
            if trainer.credentials() != who:
                raise CredentialsRefused("it is another user's by now")
            if wish["descriptor"] is not None:
                return trainer.descriptor(wish["descriptor"])
            root, path = trainer.root(), trainer.absolute(wish["path"])
        finally:
            trainer.close()
    try:
        return syscalls.open_inside(root, path, os.O_PATH)
    finally:
        os.close(root)


def read(handle: int, wish: dict[str, Any]) -> dict[str, Any] | None:
    """What a file is by its O_PATH descriptor, and what was appended: only a regular file is opened. Raises OSError."""
    seen = os.fstat(handle)
    if not stat.S_ISREG(seen.st_mode):  # opening a FIFO would make us its reader
        return None
    identity, most = [seen.st_dev, seen.st_ino], wish["most"]
    same = identity == wish["known"]
    start = wish["offset"] if same and wish["offset"] <= seen.st_size else 0  # cut off by a rotation, it begins anew
    if not most or seen.st_size == start:
        return {"identity": identity, "touched_ns": seen.st_mtime_ns, "offset": start, "joins": same}
    opened = syscalls.reopen(handle, os.O_RDONLY)
    try:
        first = max(start, os.fstat(opened).st_size - most)
        data = os.pread(opened, most, first)
    finally:
        os.close(opened)
    return {
        "identity": identity,
        "touched_ns": seen.st_mtime_ns,
        "offset": first + len(data),
        "data": base64.b64encode(data).decode("ascii"),
        "joins": same and first == start,
    }
