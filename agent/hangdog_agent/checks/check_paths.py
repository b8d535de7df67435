"""Where the checks read, which tests may draw themselves, and how: bounded, and with the error as a value."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

#: Largest file read here; a mount table of a machine full of containers has some hundred kilobytes.
_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class CheckPaths:
    """The kernel's trees. `state` is a folder of the agent's own; None remembers nothing over a restart."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    kmsg: Path = Path("/dev/kmsg")
    state: Path | None = None

    def boot(self) -> str:
        """The name of the machine's present start; `unknown` where the kernel tells none."""
        read = text(self.proc / "sys/kernel/random/boot_id")
        return read.strip()[:64] if isinstance(read, str) and read.strip() else "unknown"

    def serial(self) -> str:
        """The serial number of the machine's hardware, or what its firmware has instead; empty where only root may read it."""
        for name in ("product_serial", "product_uuid", "board_serial"):
            read = text(self.sys / "class/dmi/id" / name)
            if isinstance(read, str) and read.strip():
                return read.strip()[:64]
        return ""


def text(path: Path | str, most: int = _MOST_BYTES) -> str | int:
    """A file's text up to `most` bytes, or the number of the error that came instead (see errno)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return error.errno or errno.EIO
    try:
        read = bytearray()
        while len(read) < most and (part := os.read(fd, min(1 << 16, most - len(read)))):
            read += part
        return read.decode("utf-8", "replace")
    except OSError as error:
        return error.errno or errno.EIO
    finally:
        os.close(fd)


def number(path: Path | str) -> int | None:
    """The number a file begins with; None where it cannot be read or holds none."""
    read = text(path, 64)
    words = read.split() if isinstance(read, str) else []
    try:
        return int(words[0]) if words else None
    except ValueError:
        return None


def names(folder: Path) -> tuple[str, ...]:
    """What a folder holds, sorted; nothing where it cannot be read."""
    try:
        return tuple(sorted(os.listdir(folder)))
    except OSError:
        return ()
