"""Asks the NCCL profiler plug-in of a process how far its collectives have come.

`python -m hangdog_agent.capture.collective_progress PID [FOLDER]` prints it.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from hangdog_agent.capture import profiler_layout, profiler_ring
from hangdog_agent.procfs import Proc
from hangdog_models.errors import HangdogError, UnreadableEvidence
from hangdog_models.progress.collective_progress import CollectiveProgress, Operation

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(pid: int, now_ns: int, folder: str = "", proc: Proc | None = None) -> tuple[CollectiveProgress, ...]:
    """The communicators of a process; `folder` is its HANGDOG_PROFILER_DIR, as it sees it. Raises UnreadableEvidence.

    The path is walked inside the process's own root, and no link on it is followed.
    """
    proc = proc or Proc()
    found, status = proc.stat(pid), proc.status(pid)
    if found is None or status is None:
        raise UnreadableEvidence(f"process {pid} is gone", code="process-ended")
    path = PurePosixPath(folder or f"/dev/shm/hangdog-{status.uid}")  # the plug-in's place; checked below
    name = f"{status.pids[-1] if status.pids else pid}-{found.started}"
    try:
        with _folder(f"{proc.root}/{pid}/root", path) as at:
            fd = os.open(name, _OPEN, dir_fd=at)
    except OSError as error:
        raise UnreadableEvidence(
            f"process {pid} has no ring {path / name}: {error.strerror}", code="profiler-data-unreadable"
        ) from error
    try:
        return profiler_ring.parse(_checked(fd, status.uid, path / name), now_ns)
    finally:
        os.close(fd)


def _checked(fd: int, uid: int, path: PurePosixPath) -> profiler_ring.Fetch:
    """How a ring is read: never mapped, for whoever owns it may cut it off, and that would kill its reader."""
    kept = os.fstat(fd)
    if not stat.S_ISREG(kept.st_mode) or kept.st_uid != uid or kept.st_size != profiler_layout.SIZE:
        raise UnreadableEvidence(
            f"{path} is not a ring of the process: not its file, or of {kept.st_size} bytes",
            code="profiler-data-unreadable",
        )

    def fetch(at: int, size: int) -> bytes:
        try:
            return os.pread(fd, size, at)
        except OSError as error:
            raise UnreadableEvidence(f"{path}: {error.strerror}", code="profiler-data-unreadable") from error

    return fetch


@contextmanager
def _folder(root: str, path: PurePosixPath) -> Iterator[int]:
    at = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.parts[1:]:
            under = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = under
        yield at
    finally:
        os.close(at)


def lines(found: CollectiveProgress) -> Iterator[str]:
    """What is known of one communicator, for people."""
    name = f" {found.name}" if found.name else ""
    yield (
        f"communicator {found.communicator:x}{name}: rank {found.rank} of {found.ranks} on {found.nodes} machines"
        f"{', ended' if found.ended else ''}: {found.collectives} collectives and {found.point_to_points} sends or receives"
        f" enqueued, {found.started} started, {found.finished} finished, {found.left_out} left out"
    )
    for way, moved in (("sent", found.sent), ("received", found.received)):
        yield (
            f"  {way}: {moved.posted} steps posted, {moved.ready} ready, {moved.transmitted} transmitted, {moved.done} done,"
            f" {moved.bytes} bytes"
        )
    for operation in found.in_flight[:8]:
        yield from _lines(operation)
    if len(found.in_flight) > 8:
        yield f"  and {len(found.in_flight) - 8} more in flight"


def _lines(found: Operation) -> Iterator[str]:
    call = found.call
    yield (
        f"  in flight for {found.age_s:.3f} s, unmoved for {found.idle_s:.3f} s: {call.function} of {call.count}"
        f" {call.datatype} (sequence {call.sequence}, {call.algorithm or 'no algorithm'} {call.protocol}), {found.phase},"
        f" {found.kernels_running} kernels running"
    )
    for each in found.transfers[:8]:
        yield (
            f"    channel {each.channel} {'to' if each.sends else 'from'} rank {each.peer}: {each.done} of {each.steps} steps"
            f" done, {each.transmitted} transmitted, {each.ready} ready, {each.posted} posted; waits for {each.awaits}"
        )


def main() -> int:
    if not 2 <= len(sys.argv) <= 3 or not sys.argv[1].isdecimal():
        sys.exit("usage: python -m hangdog_agent.capture.collective_progress PID [FOLDER]")
    try:
        for found in read(int(sys.argv[1]), time.monotonic_ns(), "".join(sys.argv[2:])):
            print("\n".join(lines(found)))
    except HangdogError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
