"""One file of a bundle, wherever it lies."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """A file's path below the bundle's root with `/` between folders, and its bytes or the reason there are none."""

    path: str
    data: bytes = b""
    problem: str = ""


def mib(size: int) -> str:
    """A size in bytes as people read it: `1024.0 MiB`."""
    return f"{size / (1 << 20):.1f} MiB"


def too_large(size: int, limit: int) -> str:
    return f"{mib(size)}; files up to {mib(limit)} are read (limit file_bytes)"
