"""How much of foreign evidence we are willing to read: evidence comes from a sick machine or from a stranger."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of one bundle; every error that a bound causes names the bound.

    A real rank's py-spy JSON is 7 to 20 KB and a flight recorder dump 13 to 200 KB, so the defaults leave
    two orders of magnitude for one file and room for 16,384 ranks with their children.
    """

    #: Bytes of one file, after unpacking.
    file_bytes: int = 32 << 20
    #: Files of one bundle.
    files: int = 500_000
    #: Bytes read (and unpacked) from one bundle in all.
    total_bytes: int = 4 << 30
    #: Bytes of an archive as it lies on disk; a bundle of 16,384 ranks packs to some tens of MB.
    archive_bytes: int = 256 << 20
    #: Folders inside folders.
    folders: int = 32
    #: Levels of nesting of a JSON document or a pickle; the deepest real evidence has about 6.
    depth: int = 64
    #: Lists and mappings of one JSON document or pickle; a recorder with a ring of 20,000 operations fills this.
    containers: int = 1_000_000
    #: Values (list items, mapping entries) of one JSON document or pickle: bounds the memory a small file can claim.
    values: int = 8_000_000
    #: Threads of one process; NCCL, OpenMP and loaders together stay below a thousand.
    threads: int = 20_000
    #: Frames of one thread; CPython's recursion limit is 1,000, and native frames come on top.
    frames: int = 20_000
    #: Characters of one name, path or message, the rest is cut off; the longest symbol seen has 3,469.
    text: int = 4_096


DEFAULTS = Limits()
