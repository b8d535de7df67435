"""A folder of profiler rings that earlier trainers left."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

#: As many of ended processes stay.
KEPT = 64
#: No ring, and a living process's: however old they are, nobody removes them.
SPARED = {"7-7", "notes.txt", "1-x"}


@contextlib.contextmanager
def left_rings(folder: Path, ended: int) -> Iterator[set[str]]:
    """Makes so many of ended processes, and what is spared; answers what is to stay."""
    folder.mkdir(mode=0o700)
    names = [f"{100 + number}-1" for number in range(ended)]
    for at, name in enumerate((*SPARED, *names)):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (at + 1, at + 1))
    with (folder / "7-7").open() as living:
        fcntl.flock(living, fcntl.LOCK_SH)
        yield SPARED | set(names[-KEPT:])
