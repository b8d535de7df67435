"""Makes files and folders that their owner alone may reach, whatever the umask, narrows those that others may, and tells when one is another."""

import logging
import os
import stat
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

#: All that is kept tells of people's jobs, or decides what is done to machines: nobody else's to read, least of all to write.
FOLDER, FILE = 0o700, 0o600
#: What anybody but the owner is allowed.
_OTHERS = 0o077
#: Names of a folder that are looked at: one of ours holds some dozens, a spool some hundreds.
_MOST_NAMES = 10_000

log = logging.getLogger(__name__)


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it that are missing, each for its owner alone; raises OSError."""
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    for one in reversed(missing):
        one.mkdir(mode=FOLDER, exist_ok=True)


def make_file(path: Path) -> None:
    """Makes an empty file for its owner alone, unless it is there; raises OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE))


def restrict_folder(folder: Path, ours: tuple[str, ...]) -> None:
    """Takes from others what is ours in a folder, by patterns of names, and the folder itself; says so in the log.

    A folder with other names in it is shared with other programs, such as `/var/lib` or a home folder. It stays as it is,
    and that others may put files there is said.
    """
    try:
        names = [entry.name for entry, _ in zip(os.scandir(folder), range(_MOST_NAMES), strict=False)]
        mode = folder.stat().st_mode
    except OSError:
        return
    foreign = ""
    for name in names:
        if any(fnmatchcase(name, pattern) for pattern in ours):
            restrict_file(folder / name)
        else:
            foreign = name
    if not foreign:
        _restrict(folder, os.O_DIRECTORY, stat.S_ISDIR)
    elif mode & 0o022 and not mode & stat.S_ISVTX:
        log.warning(
            "others may put files into %s (mode %04o), which holds more than hangdog's (%r): give hangdog one of its own",
            folder, stat.S_IMODE(mode), foreign[:80],
        )  # fmt: skip


def restrict_file(path: Path) -> None:
    """Takes a file of ours from others, and says so; one that is not there, a link, or somebody else's stays as it is."""
    _restrict(path, os.O_NONBLOCK, stat.S_ISREG)


def _restrict(path: Path, flags: int, expected: Callable[[int], bool]) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    except OSError:
        return  # it is not there, or not ours to read, and so not ours to change
    try:
        found = os.fstat(fd)
        if not expected(found.st_mode) or found.st_uid != os.geteuid() or not found.st_mode & _OTHERS:
            return
        os.fchmod(fd, stat.S_IMODE(found.st_mode) & ~_OTHERS)
        log.warning("others could reach %s (mode %04o): its owner alone may now", path, stat.S_IMODE(found.st_mode))
    except OSError as error:
        log.warning("others can reach %s, and that cannot be changed: %s", path, error)
    finally:
        os.close(fd)


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Another once the file is another; None where there is none, and its error's number where it cannot be looked at."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return (-1, error.errno or 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
