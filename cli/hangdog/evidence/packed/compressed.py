"""Unpacks a single compressed file of a bundle (`rank0.txt.gz`); nothing is written, and what comes out is bounded."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import BinaryIO, cast

from hangdog.evidence.entry import BundleEntry, too_large
from hangdog.evidence.packed import zst
from hangdog_models.reading.limits import Limits

#: How a file of each kind begins, its usual ending, and what unpacks it.
_KINDS: Mapping[bytes, tuple[tuple[str, ...], Callable[[BinaryIO], BinaryIO]]] = {
    b"\x1f\x8b": ((".gz", ".gzip"), lambda raw: cast(BinaryIO, gzip.GzipFile(fileobj=raw))),
    b"BZh": ((".bz2",), lambda raw: cast(BinaryIO, bz2.BZ2File(raw))),
    b"\xfd7zXZ\0": ((".xz",), lambda raw: cast(BinaryIO, lzma.open(raw))),  # noqa: SIM115  # whoever reads it closes it
    zst.MAGIC: ((".zst",), zst.unpacking),
}
_DAMAGE = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zst.ZstdError)


def unpacked(entry: BundleEntry, limits: Limits) -> BundleEntry:
    """The file that a compressed one holds, without its ending; any other file, and an archive of several, as it is."""
    kind = next((known for magic, known in _KINDS.items() if entry.data.startswith(magic)), None)
    if kind is None:
        return entry
    endings, opened = kind
    ending = next((one for one in endings if entry.path.lower().endswith(one)), "")
    path = entry.path[: len(entry.path) - len(ending)]
    try:
        with opened(io.BytesIO(entry.data)) as stream:
            data = stream.read(limits.file_bytes + 1)
    except _DAMAGE as error:
        return BundleEntry(entry.path, problem=f"damaged: {error or type(error).__name__}")
    if len(data) > limits.file_bytes:
        return BundleEntry(path, problem=too_large(len(data), limits.file_bytes))
    return entry if data[257:262] == b"ustar" else BundleEntry(path, data)
