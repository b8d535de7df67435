"""What is asked of a file that a trainer writes, and what was found."""

from dataclasses import dataclass

#: Device and number of a file: names of the same file are equal in this.
Identity = tuple[int, int]
#: The longest path the kernel takes.
MOST_PATH = 4096


@dataclass(frozen=True, slots=True)
class FileQuery:
    """A file to be looked at: its content from `offset` on if it still is the file `known`, of any other only its end.

    `trainer` is its pid and start time. The file is what it has open as `descriptor`, else what `path` leads to from its
    root or working folder. At most `most` bytes are read, and the last ones where more were appended; 0 reads nothing.
    """

    trainer: tuple[int, int]
    descriptor: int | None = None
    path: str = ""
    most: int = 0
    known: Identity | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file as it is now; `data` ends at `offset`, and `joins` what was read of it before."""

    identity: Identity
    touched_ns: int
    offset: int
    data: bytes = b""
    joins: bool = False
