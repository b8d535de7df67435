"""Numbers that a trainer shares with the program that measures it: a file both map, so that neither waits for the other."""

import mmap
from pathlib import Path
from typing import Protocol

#: Bytes of a number.
_SIZE = 8


class Page(Protocol):
    """Numbers, each written by one side."""

    def __getitem__(self, at: int, /) -> float: ...

    def __setitem__(self, at: int, value: float, /) -> None: ...


def make(path: Path, numbers: int) -> Page:
    """A new page of zeros."""
    path.write_bytes(bytes(numbers * _SIZE))
    return open_page(path)


def open_page(path: Path) -> Page:
    """The numbers of a page that was made; they change as the others write them."""
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
