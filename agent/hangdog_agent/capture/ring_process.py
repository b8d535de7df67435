"""Copies the ring of one trainer's NCCL profiler plug-in, in a process that has the trainer's rights on files and no others.

Started by ring_statement.py with one JSON object as its argument, and killed at its deadline. It writes the copy to stdout
and ends with 0, with `NONE` where there is no ring, else it says on stderr what is wrong. The trainer is not asked: it may be
stopped. Where the ring lies is the trainer's choice, and may be a file system that hangs.
"""

import json
import os
import stat
import sys
from itertools import islice
from typing import Any

from hangdog_agent.capture import profiler_layout as layout
from hangdog_agent.confinement import syscalls
from hangdog_agent.confinement.credentials import CredentialsRefused
from hangdog_agent.confinement.pinned_process import PinnedProcess

#: Ends with this where the trainer keeps no ring.
NONE = 3
#: Names of a folder that are looked at: each process of a machine has one ring.
_MOST_NAMES = 10_000


def main() -> None:
    order = json.loads(sys.argv[1])
    try:
        handle = _opened(order)
    except (FileNotFoundError, NotADirectoryError):
        sys.exit(NONE)
    except CredentialsRefused as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"its ring cannot be opened: {error.strerror or error}")
    kept = os.fstat(handle)
    if not stat.S_ISREG(kept.st_mode) or kept.st_size != layout.SIZE:
        sys.exit(f"what stands in its ring's place is no ring: a file of {kept.st_size} bytes")
    sys.stdout.buffer.write(copied(handle))


def _opened(order: dict[str, Any]) -> int:
    """The ring of the trainer, opened with its user's rights; raises Refused, OSError."""
    process = PinnedProcess(order["proc"], order["pid"], order["started"])
    who = process.credentials()
    folder = process.absolute(order["folder"]) or f"/dev/shm/hangdog-{who.uid}"  # the plug-in's place; checked below
    root = process.root()
    syscalls.become(who, order["cpu_s"])
    name = order["name"]
    if name.startswith("*"):
        name = _called(root, folder, name[1:])
    reached = syscalls.open_inside(root, f"{folder}/{name}", os.O_PATH | os.O_NOFOLLOW)
    kept = os.fstat(reached)
    if not stat.S_ISREG(kept.st_mode) or kept.st_uid != who.uid:
        raise CredentialsRefused("the file at its ring's path is not a regular file of its user")
    return syscalls.reopen(reached, os.O_RDONLY)


def _called(root: int, folder: str, ends: str) -> str:
    """The name in a folder that ends so; raises FileNotFoundError where none does, or several do."""
    handle = syscalls.open_inside(root, folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    with os.scandir(handle) as entries:
        names = [entry.name for entry in islice(entries, _MOST_NAMES) if entry.name.endswith(ends)]
    if len(names) != 1:
        raise FileNotFoundError
    return names[0]


def copied(handle: int) -> bytes:
    """All of a ring, each record as it was at one moment; one that is being written all the time is left empty."""
    image = bytearray(os.pread(handle, layout.SIZE, 0))
    for at, size, apart, places in layout.TABLES:
        for start in range(at, at + apart * places, apart):
            if any(image[start : start + 16]) and not _settled(handle, image, start, size):
                image[start : start + size] = bytes(size)
    return bytes(image)


def _settled(handle: int, image: bytearray, start: int, size: int) -> bool:
    """Reads a record again until nobody wrote it meanwhile; never for long."""
    for _ in range(layout.TRIES):
        if not image[start] & 1 and image[start : start + 8] == os.pread(handle, 8, start):
            return True
        image[start : start + size] = os.pread(handle, size, start).ljust(size, b"\0")
    return False


if __name__ == "__main__":
    main()
