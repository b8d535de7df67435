"""One trainer as the kernel shows it, held by its folder in /proc: the pid cannot become another process's meanwhile."""

import os
import stat

from hangdog_agent.confinement import credentials
from hangdog_agent.confinement.credentials import Credentials, CredentialsRefused

#: Descriptors looked through for a FIFO: their number is the trainer's choice, and each costs 2 µs.
MOST_DESCRIPTORS = 1 << 16
#: Read of `stat` and `status`: the groups of a user may be many. So much at once, which is all of nearly every one; room for
#: the most would cost more than the reading.
_MOST_BYTES, _AT_ONCE = 1 << 20, 1 << 14
#: Read of `maps`: Linux allows 65,530 of them unless told otherwise (vm.max_map_count), some 80 bytes each.
_MOST_MAPS = 16 << 20

Inode = tuple[int, int]


class PinnedProcess:
    """The process that had this pid when it started at this time (ticks after boot). Raises Refused once it has ended."""

    def __init__(self, proc: str, pid: int, started: int) -> None:
        """`proc` is the folder of the process table."""
        self.pid = pid
        try:
            self._home = os.open(f"{proc}/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            raise CredentialsRefused("its process has ended") from None
        # proc(5): the name in brackets may hold anything, the start time is field 22
        fields = self._text("stat").rpartition(")")[2].split()
        if len(fields) < 20 or fields[19] != str(started):
            self.close()
            raise CredentialsRefused("its process has ended")

    def close(self) -> None:
        os.close(self._home)

    def credentials(self) -> Credentials:
        """Whose it is; raises Refused where it runs with another user's rights."""
        credentials.lent(self._bytes("auxv"))
        return credentials.parse(self._text("status"))

    def root(self) -> int:
        """An O_PATH descriptor of its root folder, in whatever mount namespace; raises OSError."""
        return os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._home)

    def absolute(self, path: str) -> str:
        """The same path from its root folder; an empty one stays empty."""
        if not path or path.startswith("/"):
            return path
        try:
            return f"{os.readlink('cwd', dir_fd=self._home)}/{path}"
        except OSError:
            return f"/{path}"

    def descriptor(self, number: int) -> int:
        """An O_PATH descriptor of what it has open there, which opens nothing; raises OSError."""
        return os.open(f"fd/{number}", os.O_PATH | os.O_CLOEXEC, dir_fd=self._home)

    def file_name(self, number: int) -> str:
        """The name of what it has open there; raises OSError."""
        return os.readlink(f"fd/{number}", dir_fd=self._home).rpartition("/")[2]

    def fifos(self, name: str) -> set[Inode]:
        """The FIFOs of that file name it has open, by device and inode. Raises OSError, Refused.

        Only what has the name is asked for its inode: others may lie on a file server that is dead.
        """
        folder = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._home)
        found: set[Inode] = set()
        try:
            with os.scandir(folder) as entries:
                for count, entry in enumerate(entries):
                    if count >= MOST_DESCRIPTORS:
                        raise CredentialsRefused(f"it has more than {MOST_DESCRIPTORS} files open")
                    try:
                        if os.readlink(entry.name, dir_fd=folder).rpartition("/")[2] == name:
                            about = os.stat(entry.name, dir_fd=folder)
                            if stat.S_ISFIFO(about.st_mode):
                                found.add((about.st_dev, about.st_ino))
                    except FileNotFoundError:
                        continue
        finally:
            os.close(folder)
        return found

    def maps(self) -> str:
        """What its memory is made of (proc(5)); raises Refused. Ask for it within `syscalls.privileged`."""
        read = self._bytes("maps", _MOST_MAPS)
        if len(read) >= _MOST_MAPS:
            raise CredentialsRefused(f"its memory map is longer than {_MOST_MAPS} bytes")
        return read.decode("utf-8", "replace")

    def _text(self, name: str) -> str:
        return self._bytes(name).decode("utf-8", "replace")

    def _bytes(self, name: str, most: int = _MOST_BYTES) -> bytes:
        try:
            opened = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._home)
            try:
                read = part = os.read(opened, _AT_ONCE)
                while part and len(read) < most:
                    part = os.read(opened, _AT_ONCE)
                    read += part
                return read
            finally:
                os.close(opened)
        except OSError:
            raise CredentialsRefused("its process has ended") from None
