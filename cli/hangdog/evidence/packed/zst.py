"""Packs and unpacks Zstandard; who unpacks bounds what comes out, for a few bytes may hold gigabytes."""

import sys
from typing import BinaryIO, cast

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["MAGIC", "ZstdError", "packing", "unpacking", "zstd"]

#: How such a file begins (RFC 8878).
MAGIC = b"\x28\xb5\x2f\xfd"
#: What unpacking a damaged one raises.
ZstdError = zstd.ZstdError
#: 128 MiB, the most that its own tool takes without being told to: a frame says itself how much memory it wants.
_WINDOW_LOG = 27


def unpacking(packed: BinaryIO) -> BinaryIO:
    """A file to read from, with what `packed` holds."""
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    return cast(BinaryIO, zstd.ZstdFile(packed, "rb", options=options))


def packing(packed: BinaryIO) -> BinaryIO:
    """A file to write to, whose content goes to `packed`; closing it leaves that open."""
    return cast(BinaryIO, zstd.ZstdFile(packed, "wb"))
