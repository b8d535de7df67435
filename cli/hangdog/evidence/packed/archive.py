"""Reads the files of a .zip, .tar, .tar.gz or .tar.zst in memory: nothing is ever written, and every size is bounded."""

import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from hangdog.evidence.entry import BundleEntry, mib, too_large
from hangdog.evidence.folder import unfit
from hangdog.evidence.naming import is_meaningful
from hangdog.evidence.packed import zst
from hangdog.evidence.packed.tarball import tar_entries
from hangdog_models.reading.limits import Limits

#: Bytes of a zip's directory for each file it may hold: a record of 46 and a path of average length.
_RECORD = 100
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: What zipfile raises on damaged or hostile archives beside its own error.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError,
    OverflowError, IndexError, KeyError,
)  # fmt: skip


def is_archive(head: bytes) -> bool:
    """Whether a file of at least 512 bytes, or less, begins like an archive that we read."""
    return head[:4] in (b"PK\x03\x04", b"PK\x05\x06", zst.MAGIC) or head[:2] == b"\x1f\x8b" or head[257:262] == b"ustar"


def archive_entries(file: Path, limits: Limits, progress: Callable[[int, int], None]) -> Iterator[BundleEntry]:
    """The files of an archive; a folder that holds all of them is taken as the bundle's root.

    Members that are no plain files, lead outside or are too large come with the reason, and a damaged archive with what
    stands before the damage.
    """
    size = file.stat().st_size
    if size > limits.archive_bytes:
        yield BundleEntry(
            ".", problem=f"{mib(size)}; archives up to {mib(limits.archive_bytes)} are read (limit archive_bytes)"
        )
        return
    with file.open("rb") as opened:
        zipped = opened.read(2) == b"PK"
    read = _zip_entries if zipped else tar_entries
    paths = [entry.path for entry in _walked(read(file, limits, lambda path: False), limits)]
    prefix = _root(paths)
    seen: set[str] = set()
    for done, entry in enumerate(_walked(read(file, limits, lambda path: True), limits)):
        progress(done, len(paths))
        path = entry.path.removeprefix(prefix)
        if path in seen and path != ".":
            entry = BundleEntry(path, problem="the archive holds two files of this name; the first is used")
        seen.add(path)
        yield BundleEntry(path, entry.data, entry.problem)
    progress(len(paths), len(paths))


def _walked(entries: Iterator[BundleEntry], limits: Limits) -> Iterator[BundleEntry]:
    """The entries up to the limit, with unsafe paths turned into problems and `./` taken off the others."""
    for number, entry in enumerate(entries):
        if number >= limits.files:
            yield BundleEntry(".", problem=f"more than {limits.files} files; the rest is not looked at (limit files)")
            return
        parts = [part for part in entry.path.split("/") if part not in ("", ".")]
        if ".." in parts or entry.path.startswith("/") or "\\" in entry.path or "\0" in entry.path:
            yield BundleEntry(entry.path, problem="its name leads outside the archive")
        else:
            yield BundleEntry("/".join(parts) or ".", entry.data, entry.problem)


def _root(paths: list[str]) -> str:
    """The folder, with its `/`, that all paths lie in, unless its name tells a rank, machine or round; else an empty text."""
    inside = [path for path in paths if path != "."]
    first = {path.partition("/")[0] for path in inside}
    if len(first) != 1 or not all("/" in path for path in inside):
        return ""
    folder = first.pop()
    return "" if is_meaningful(folder) or folder == ".." else folder + "/"


def _zip_entries(file: Path, limits: Limits, wanted: Callable[[str], bool]) -> Iterator[BundleEntry]:
    try:
        with file.open("rb") as raw, closing(zipfile.ZipFile(_Capped(raw, limits.files * _RECORD))) as archive:
            for member in sorted(archive.infolist(), key=lambda info: info.filename):
                if not member.filename.endswith("/"):
                    yield (
                        _zip_entry(archive, member, limits) if wanted(member.filename) else BundleEntry(member.filename)
                    )
    except _DAMAGE as error:
        yield BundleEntry(".", problem=f"a damaged zip archive: {error}")


def _zip_entry(archive: zipfile.ZipFile, member: zipfile.ZipInfo, limits: Limits) -> BundleEntry:
    path, mode = member.filename, member.external_attr >> 16
    if stat.S_IFMT(mode) and (problem := unfit(mode)):
        return BundleEntry(path, problem=problem)
    if member.flag_bits & 1:
        return BundleEntry(path, problem="encrypted")
    if member.compress_type not in _METHODS:
        return BundleEntry(path, problem="packed by a method other than deflate")
    if member.file_size > limits.file_bytes:
        return BundleEntry(path, problem=too_large(member.file_size, limits.file_bytes))
    try:
        with archive.open(member) as opened:
            data = opened.read(limits.file_bytes + 1)
    except _DAMAGE as error:
        return BundleEntry(path, problem=f"damaged in the archive: {error}")
    return (
        BundleEntry(path, data)
        if len(data) <= limits.file_bytes
        else BundleEntry(path, problem=too_large(len(data), limits.file_bytes))
    )


class _Capped:
    """A file that refuses to be read in pieces larger than `most`: zipfile takes an archive's directory in one."""

    def __init__(self, raw: BinaryIO, most: int) -> None:
        self._raw, self._most = raw, most
        self.seek, self.tell, self.seekable, self.close = raw.seek, raw.tell, raw.seekable, raw.close

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(self._most + 1 if size < 0 else min(size, self._most + 1))
        if len(data) > self._most:
            raise ValueError(f"its directory is larger than {mib(self._most)} (limit files)")
        return data
