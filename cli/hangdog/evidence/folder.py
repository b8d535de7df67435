"""Reads the files of a directory without following a link, opening a device or waiting for a pipe."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from hangdog.evidence.entry import BundleEntry, too_large
from hangdog_models.reading.limits import Limits

_KINDS = (
    (stat.S_ISLNK, "a symbolic link; links are not followed"),
    (stat.S_ISFIFO, "a named pipe; only plain files are read"),
    (stat.S_ISSOCK, "a socket; only plain files are read"),
    (stat.S_ISBLK, "a block device; only plain files are read"),
    (stat.S_ISCHR, "a character device; only plain files are read"),
)


def folder_entries(root: Path, limits: Limits, progress: Callable[[int, int], None]) -> Iterator[BundleEntry]:
    """All files below `root` in the order of their paths, one in memory at a time; `progress` gets (done, total)."""
    found = sorted(_listed(os.fspath(root), "", 0, limits))
    if len(found) > limits.files:
        yield BundleEntry(".", problem=f"more than {limits.files} files; the rest is not looked at (limit files)")
        found = found[: limits.files]
    for done, (path, problem) in enumerate(found):
        progress(done, len(found))
        yield BundleEntry(path, problem=problem) if problem else read_file(root / path, path, limits)
    progress(len(found), len(found))


def read_file(file: Path, path: str, limits: Limits) -> BundleEntry:
    """One file as an entry called `path`; a reason instead of its bytes where it is no plain file or too large."""
    try:
        # Never wait for the writer of a pipe, never follow a link that was put here since the folder was listed.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return BundleEntry(path, problem=(error.strerror or "cannot be opened").lower())
    with os.fdopen(descriptor, "rb", buffering=0) as opened:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return BundleEntry(path, problem=unfit(about.st_mode))
        if about.st_size > limits.file_bytes:
            return BundleEntry(path, problem=too_large(about.st_size, limits.file_bytes))
        try:
            data = _up_to(opened.read, limits.file_bytes + 1)
        except OSError as error:
            return BundleEntry(path, problem=(error.strerror or "cannot be read").lower())
    if len(data) > limits.file_bytes:  # grew while it was read, or a file whose size the kernel does not tell
        return BundleEntry(path, problem=too_large(len(data), limits.file_bytes))
    return BundleEntry(path, data)


def unfit(mode: int) -> str:
    """Why a file of this mode is not read; empty for a plain file."""
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "" if stat.S_ISREG(mode) else "no plain file")


def _up_to(read: Callable[[int], bytes | None], most: int) -> bytes:
    data = bytearray()
    while len(data) < most and (piece := read(min(most - len(data), 1 << 20))):
        data += piece
    return bytes(data)


def _listed(folder: str, prefix: str, level: int, limits: Limits) -> list[tuple[str, str]]:
    """Paths below a folder, each with the reason it cannot be read or an empty text; stops soon after the limit."""
    if level > limits.folders:
        return [(prefix.rstrip("/"), f"more than {limits.folders} folders deep (limit folders)")]
    found: list[tuple[str, str]] = []
    try:
        with os.scandir(folder) as inside:
            for item in inside:
                path = prefix + item.name
                if item.is_dir(follow_symlinks=False):
                    found += _listed(item.path, path + "/", level + 1, limits)
                else:
                    found.append((path, unfit(item.stat(follow_symlinks=False).st_mode)))
                if len(found) > limits.files:
                    break
    except OSError as error:
        found.append((prefix.rstrip("/") or ".", (error.strerror or "cannot be listed").lower()))
    return found
