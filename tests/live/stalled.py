"""A file system that opens its files and never gives their content: FUSE, spoken by hand, by a process of its own.

`python -m live.stalled MOUNT SOURCE` serves the plain files of a folder until its standard input ends. Readers wait inside
the kernel as on a network share whose server is gone, and with the process that serves them all of it is over.
"""

import ctypes
import errno
import os
import select
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

#: Messages of the protocol (include/uapi/linux/fuse.h, version 7.31): a few of them, and those that want no answer.
LOOKUP, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT = 1, 3, 14, 15, 18, 25, 26
FORGET, INTERRUPT, BATCH_FORGET = 2, 36, 42
#: Reads go ahead, as on a network share: who wants a page waits for it uninterruptibly.
ASYNC_READ = 1
ROOT = 1
#: The kernel refuses to hand out requests into a smaller buffer.
BUFFER = 1 << 17
#: Ending is done at once. Seconds.
END_S = 20.0
#: Names and attributes may be remembered for so long; they never change. Seconds.
VALID_S = 60
Files = list[tuple[bytes, int]]
HEADER = struct.Struct("<IIQQIIII")


class Stalled:
    """The file system while its block lasts: `folder` shows the plain files of `source`, and reading one never ends."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def __enter__(self) -> Self:
        self._place = tempfile.TemporaryDirectory(prefix="hs-")
        self.folder = Path(self._place.name)
        self._process = subprocess.Popen(
            (sys.executable, "-m", "live.stalled", str(self.folder), str(self._source)),
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=END_S)
        self._place.cleanup()


def main() -> None:
    folder, source = sys.argv[1], Path(sys.argv[2])
    # read before anybody reads here: the source's own path may come to lead into this file system
    files = [(file.name.encode(), file.stat().st_size) for file in sorted(source.iterdir())]
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    if libc.mount(b"stalled", folder.encode(), b"fuse.stalled", 0, options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount on {folder}")
    try:
        print("ready", flush=True)
        _serve(device, files)
    finally:
        libc.umount2(folder.encode(), 2)  # detached: readers are still inside, and end with the device
        os.close(device)


def _serve(device: int, files: Files) -> None:
    while True:
        ready, _, _ = select.select([device, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        request = os.read(device, BUFFER)
        _, opcode, unique, node, *_ = HEADER.unpack_from(request)
        if opcode in (READ, FORGET, INTERRUPT, BATCH_FORGET):
            continue
        answer = _answer(opcode, node, request[HEADER.size :], files)
        failed, content = (answer, b"") if isinstance(answer, int) else (0, answer)
        os.write(device, struct.pack("<IiQ", 16 + len(content), -failed, unique) + content)


def _answer(opcode: int, node: int, body: bytes, files: Files) -> bytes | int:
    """The content of an answer, or an error number; file number n is node n + 2."""
    if opcode == INIT:
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, BUFFER, ASYNC_READ, 16, 12, 4096, 1, 0, 0, 0)
    if opcode == LOOKUP:
        names = [name for name, _ in files]
        name = body.rstrip(b"\0")
        if node != ROOT or name not in names:
            return errno.ENOENT
        found = names.index(name) + 2
        return struct.pack("<QQQQII", found, 0, VALID_S, VALID_S, 0, 0) + _attributes(found, files)
    if opcode == GETATTR:
        return struct.pack("<QII", VALID_S, 0, 0) + _attributes(node, files)
    if opcode == OPEN:
        return struct.pack("<QII", 0, 0, 0)
    return b"" if opcode in (RELEASE, FLUSH) else errno.ENOSYS


def _attributes(node: int, files: Files) -> bytes:
    size = 0 if node == ROOT else files[node - 2][1]
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o444
    return struct.pack(
        "<QQQQQQIIIIIIIIII", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0
    )


if __name__ == "__main__":
    main()
