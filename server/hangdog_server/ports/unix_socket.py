"""The unix socket for people of this machine: where it lies, and who may open it."""

import contextlib
import os
import socket
import stat
from pathlib import Path

from hangdog_server.ports.listeners import BACKLOG

#: Bytes that the path of a socket may have.
LONGEST = 107
#: Another server answers at once, or is none. Seconds.
_ALIVE_S = 1.0


class Taken(OSError):
    """Another server listens there."""


def listening(path: Path, everybody: bool) -> socket.socket:
    """A socket at that path, made with its folder; one that a dead server left is replaced. Raises OSError.

    Only its owner may open it; with `everybody`, whoever reaches the path, and the server asks the kernel who that is.
    """
    if len(os.fsencode(path)) > LONGEST - 8:
        raise OSError(f"its path has more than {LONGEST - 8} bytes")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if everybody else 0o700)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError("something else lies there")
        if answers(path):
            raise Taken("another server listens there")
    made = socket.socket(socket.AF_UNIX)
    new = path.with_name(f"{path.name}.{os.getpid() % 1_000_000}")
    try:
        made.setblocking(False)
        new.unlink(missing_ok=True)
        before = os.umask(0o177)  # nobody opens it before it is said who may
        try:
            made.bind(str(new))
        finally:
            os.umask(before)
        made.listen(BACKLOG)
        new.chmod(0o666 if everybody else 0o600)
        new.rename(path)
    except BaseException:
        made.close()
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return made


def answers(path: Path) -> bool:
    """Whether somebody listens there who lets us connect."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ALIVE_S)
        try:
            asking.connect(str(path))
        except TimeoutError:
            return True  # its queue is full
        except OSError:
            return False
    return True


def identity(path: Path) -> tuple[int, int] | None:
    """Which file lies there now; None for none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino)
