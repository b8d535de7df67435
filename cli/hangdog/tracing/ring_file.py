"""Makes the file in shared memory that holds a process's ring, as agent/profiler/profiler.c makes it."""

import contextlib
import fcntl
import mmap
import os
import re
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from hangdog.tracing.ring_layout import layout

#: Names of the plug-in's own settings, which hold here as well.
FOLDER, SWITCH = "HANGDOG_PROFILER_DIR", "HANGDOG_PROFILER"
#: Others may not write to the folder: they could make us write where they choose.
_OTHERS_WRITE = 0o022
#: Rings of ended processes that stay, the latest ones: they are evidence. More only fill memory.
KEPT = 64
_LOCK_TRIES = 1000
_RING = re.compile("[0-9]+-[0-9]+")


def create_ring(environ: Mapping[str, str] = os.environ) -> mmap.mmap:
    """This process's ring, mapped and empty; raises OSError where the folder or the memory is not to be had."""
    started = _started_ticks()
    name = f"{os.getpid()}-{started}"
    folder = _open_folder(environ.get(FOLDER) or f"/dev/shm/hangdog-{os.geteuid()}")
    try:
        with contextlib.suppress(OSError):  # what others left is no reason to keep nothing
            _remove_old(folder)
        memory = _mapped(folder, name)
    finally:
        os.close(folder)
    header = layout.HEADER.pack(
        b"", layout.VERSION, layout.SIZE, layout.COMMS, layout.OPS, layout.FLOWS, os.getpid(), started,
        time.monotonic_ns(), 0, 0,
    )  # fmt: skip
    memory[: layout.HEADER.size] = header
    memory[: len(layout.MAGIC)] = layout.MAGIC  # last: with it the file is whole
    return memory


def _mapped(folder: int, name: str) -> mmap.mmap:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, 0o600, dir_fd=folder)
    except FileExistsError:  # this process's own: it traced before
        os.unlink(name, dir_fd=folder)
        handle = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        _hold(handle)
        os.posix_fallocate(handle, 0, layout.SIZE)  # a full /dev/shm must fail here: later it would kill the trainer
        return mmap.mmap(handle, layout.SIZE)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(handle)


def _hold(handle: int) -> None:
    """Locks a ring; its mapping holds the lock as long as this process lives.

    Another that starts may try this very lock, for microseconds: unheld, the ring would count as an ended process's.
    """
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            os.sched_yield()
        except OSError:  # a file system without locks: nobody removes rings there
            return


def _remove_old(folder: int) -> None:
    """Of the rings that no process holds any more, in whatever container, all but the latest `KEPT`."""
    ended = []
    for name in filter(_RING.fullmatch, os.listdir(folder)):
        with contextlib.suppress(OSError):  # another one removes it, or it is being made
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ended.append((os.fstat(handle).st_mtime_ns, name))
            finally:
                os.close(handle)
    for _, name in sorted(ended, reverse=True)[KEPT:]:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)


def _open_folder(path: str) -> int:
    with contextlib.suppress(FileExistsError):
        Path(path).mkdir(mode=0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & _OTHERS_WRITE:
        os.close(folder)
        raise PermissionError(1, "others may write to it, or own it", path)
    return folder


def _started_ticks() -> int:
    """When this process began, in ticks after boot, by which readers know it."""
    text = Path("/proc/self/stat").read_bytes()
    return int(text[text.rindex(b")") + 2 :].split()[19])
