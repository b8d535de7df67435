"""A process of another user that looks like a trainer, and does with its own files what a body of code says.

`python attacker.py RIGHTS BODY`, started as root: RIGHTS is the JSON of stage.Rights. It enters its namespaces, gives up every
right it was started with, and runs BODY, which finds all that is defined here and whatever `given` it was handed.
"""

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import threading  # noqa: F401 - for bodies, which can import nothing any more
import time
from pathlib import Path
from typing import NoReturn

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC_PRIVATE = 0x4000 | (1 << 18)
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_CAPBSET_DROP = 1, 4, 15, 24
_CAPABILITIES = 64
_CAPABILITY_VERSION_3 = 0x20080522
#: Descriptors left free once the table is filled: for the FIFO, and for what the body opens later.
_FREE = 8

#: Exchanges at full speed, some 30 ms of them, and then so many with a pause, which together take as long. Seconds.
_FAST, _SLOW, _PAUSE_S = 10_000, 15, 0.002

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    rights, body = json.loads(sys.argv[1]), sys.argv[2]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    if rights["container"]:
        container(rights["container"])
    drop(rights["uid"])
    if rights["user_namespace"]:
        user_namespace(rights["uid"])
    _libc.prctl(_PR_SET_NAME, b"python", 0, 0, 0)
    exec(compile(body, "body", "exec"), globals() | {"given": rights["given"]})  # noqa: S102 - a test's own code


def container(root: str) -> None:
    """A mount namespace in which all there is is an empty file system, mounted at `root`, with a folder for everybody."""
    checked(_libc.unshare(_CLONE_NEWNS))
    checked(_libc.mount(None, b"/", None, _MS_REC_PRIVATE, None))
    checked(_libc.mount(b"none", root.encode(), b"tmpfs", 0, None))
    os.chroot(root)
    os.chdir("/")
    work = Path("/work")
    work.mkdir()
    work.chmod(0o777)


def drop(uid: int) -> None:
    """Becomes another user, or root without any capability (`uid` 0)."""
    for capability in range(_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    if uid == 0:
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        checked(_libc.capset(header, (ctypes.c_uint32 * 6)()))
    dumpable(True)  # the change took that away, which a trainer that its user has started does have


def dumpable(yes: bool) -> None:
    """Whether processes of the same user may look inside this one; /proc/PID belongs to root where not."""
    checked(_libc.prctl(_PR_SET_DUMPABLE, int(yes), 0, 0, 0))


def user_namespace(uid: int) -> None:
    """Root of a user namespace of its own, and of a mount namespace in it."""
    checked(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    for name, said in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {uid} 1")):
        Path(f"/proc/self/{name}").write_text(said)


def fill() -> None:
    """Opens as many descriptors as the limit allows, so that whoever walks them takes long, and finds the FIFO last."""
    null, last = os.open("/", os.O_PATH), -1
    try:
        while True:
            last = os.dup(null)
    except OSError:
        for fd in range(last - _FREE + 1, last + 1):
            os.close(fd)


def opened(path: str) -> int:
    """A FIFO that is made and held open, as PyTorch does it."""
    os.mkfifo(path)
    Path(path).chmod(0o666)  # also for whoever asks as another user by mistake
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


def exchange(one: str, other: str) -> None:
    """Two names change places, in one step."""
    checked(_libc.renameat2(_AT_FDCWD, one.encode(), _AT_FDCWD, other.encode(), _RENAME_EXCHANGE))


def flipping(one: str, other: str) -> None:
    """Starts a second process that exchanges two names for as long as this one lives.

    For a while it does so as fast as it can, to meet windows of microseconds; then with pauses, to meet those of milliseconds.
    """
    if os.fork():
        return
    dies_with_parent()
    first, second, call = one.encode(), other.encode(), _libc.renameat2
    while True:
        for _ in range(_FAST):
            call(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
        for _ in range(_SLOW):
            call(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
            time.sleep(_PAUSE_S)


def served(path: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(64)
    return server


def dies_with_parent() -> None:
    parent = os.getppid()
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def ready() -> None:
    os.write(1, b"ready\n")


def wait_for(door: int) -> None:
    """Returns once somebody has written to the FIFO, and tells so by a `p` on stdout; ends when its stdin does."""
    poll = select.poll()
    for fd in (0, door):
        poll.register(fd, select.POLLIN)
    while True:
        waiting = dict(poll.poll())
        if 0 in waiting:
            sys.exit()
        if waiting[door] & select.POLLIN and os.read(door, 4096):
            os.write(1, b"p")
            return


def wait() -> NoReturn:
    """Ends when its stdin does."""
    os.read(0, 1)
    sys.exit()


def checked(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main()
