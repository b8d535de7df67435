"""Walks a .tar, .tar.gz or .tar.zst forwards, once, within bounds."""

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from hangdog.evidence.entry import BundleEntry, mib, too_large
from hangdog.evidence.packed import zst
from hangdog_models.reading.limits import Limits

#: Bytes that one member's headers may take; a long name and its extended header are some KB.
_HEADER = 1 << 18
#: Bytes unpacked at a time.
_PIECE = 1 << 20
#: What tarfile, gzip and zstd raise on damaged or hostile archives beside their own errors.
_DAMAGE = (
    tarfile.TarError, zlib.error, zst.ZstdError, OSError, EOFError, ValueError, OverflowError, KeyError, IndexError,
)  # fmt: skip
_KINDS = (
    (tarfile.TarInfo.issym, "a symbolic link; links are not followed"),
    (tarfile.TarInfo.islnk, "a hard link; links are not followed"),
    (tarfile.TarInfo.isfifo, "a named pipe; only plain files are read"),
    (tarfile.TarInfo.isdev, "a device; only plain files are read"),
    (tarfile.TarInfo.issparse, "a sparse file; only plain files are read"),
)


def tar_entries(file: Path, limits: Limits, wanted: Callable[[str], bool]) -> Iterator[BundleEntry]:
    """The members in the archive's order; the data of those that are not `wanted` is passed over."""
    try:
        with file.open("rb") as raw:
            yield from _members(_Forward(_unpacked(raw), limits.total_bytes), limits, wanted)
    except _DAMAGE as error:
        yield BundleEntry(".", problem=f"a damaged tar archive: {error or type(error).__name__}")


def _unpacked(raw: BinaryIO) -> BinaryIO:
    """The archive itself, whatever it is packed with."""
    head = raw.read(len(zst.MAGIC))
    raw.seek(0)
    if head == zst.MAGIC:
        return zst.unpacking(raw)
    return cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if head[:2] == b"\x1f\x8b" else raw


def _members(forward: "_Forward", limits: Limits, wanted: Callable[[str], bool]) -> Iterator[BundleEntry]:
    archive = tarfile.TarFile(fileobj=forward, mode="r", encoding="utf-8", errors="surrogateescape")  # type: ignore[arg-type]
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # it would keep every header it has seen
        if not member.isdir():
            yield _entry(forward, member, limits) if wanted(member.name) else BundleEntry(member.name)
        forward.next_header()
    if forward.ended:
        yield BundleEntry(".", problem="a tar archive without its end mark: it may be cut short")


def _entry(forward: "_Forward", member: tarfile.TarInfo, limits: Limits) -> BundleEntry:
    problem = next((words for is_kind, words in _KINDS if is_kind(member)), "")
    if problem or not member.isreg():
        return BundleEntry(member.name, problem=problem or "no plain file")
    if member.size > limits.file_bytes:
        return BundleEntry(member.name, problem=too_large(member.size, limits.file_bytes))
    forward.seek(member.offset_data)
    data = forward.take(member.size)
    if len(data) < member.size:
        raise EOFError("it ends before a file begins")
    return BundleEntry(member.name, data)


class _Forward:
    """A file for tarfile that is read forwards only, so that no header can make it go round in circles.

    What is unpacked in all is bounded, and so is what `read` gives between two members: only headers come that way.
    """

    def __init__(self, raw: BinaryIO, most: int) -> None:
        self._raw, self._most, self._at, self._header = raw, most, 0, _HEADER
        self.ended = False  # whether somebody asked for more than there was

    def read(self, size: int) -> bytes:
        self._header -= size
        if size < 0 or self._header < 0:
            raise ValueError(f"the headers of one file take more than {_HEADER >> 10} KiB")
        return self.take(size)

    def next_header(self) -> None:
        self._header = _HEADER

    def take(self, size: int) -> bytes:
        """The next `size` bytes; raises EOFError where the archive ends before, unless it ends here."""
        self._at += size
        if self._at > self._most:
            raise ValueError(f"it unpacks to more than {mib(self._most)} (limit total_bytes)")
        pieces = []
        while size > 0 and (piece := self._raw.read(min(size, _PIECE))):
            pieces.append(piece)
            size -= len(piece)
        self._at -= size
        self.ended = size > 0
        if size and pieces:
            raise EOFError("it ends in the middle of a file")
        return b"".join(pieces)

    def seek(self, position: int) -> int:
        if position < self._at:
            raise ValueError("a header that leads backwards")
        while self._at < position and self.take(min(_PIECE, position - self._at)):
            pass
        return self._at

    def tell(self) -> int:
        return self._at
