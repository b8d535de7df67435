"""A socket that gRPC listens on and that nobody but this process can connect to, for it has no name anywhere."""

import contextlib
import os
import tempfile
from pathlib import Path


class Inner:
    """A socket that gRPC listens on and only this process can connect to: `path` is for gRPC, until `hide` is called."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hangdog-"))  # for its owner alone
        self._entry = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        self.path = f"/proc/self/fd/{self._entry}/grpc"  # short, however long the folder's name is
        self._file = -1

    def hide(self) -> str:
        """Takes its name away; gives what leads there all the same, for this process."""
        self._file = os.open(self.path, os.O_PATH | os.O_NOFOLLOW)
        self.forget()
        return f"/proc/self/fd/{self._file}"

    def forget(self) -> None:
        """Removes what is left of its name."""
        with contextlib.suppress(OSError):
            (self._folder / "grpc").unlink()
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def close(self) -> None:
        """Lets go of it."""
        self.forget()
        for fd in (self._entry, self._file):
            if fd >= 0:
                os.close(fd)
        self._entry = self._file = -1
