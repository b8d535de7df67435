"""The chain of the audit log: every line holds the hash of the line before it, and a check says where that does not fit.

It shows that a line was changed, taken out, put in or moved. It does not stop whoever can write the file from making all
hashes anew: for that the hash of a late line has to be kept elsewhere, and `check` be asked for it (`expected`).
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Bytes by which a line grows: a number, a hash and their names.
ROOM = 128
#: What stands before the first line that there ever was.
NOTHING = "0" * 64
#: Breaks that are told one by one; a file of something else has one in each line.
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Break:
    """Where the chain does not hold: the file, its line (1 first), and what is wrong."""

    file: str
    line: int
    what: str


@dataclass(slots=True)
class Checked:
    """What a check found. `lines` are in the chain; `older` were written by a version without one.

    `torn` are lines that a crash or a full disk cut off while they were written: the next line vouches for what is left
    of them, or they are the last. `broken` is what cannot come about by itself. `head` is the hash of the last line.
    """

    lines: int = 0
    older: int = 0
    torn: list[Break] = field(default_factory=list)
    broken: list[Break] = field(default_factory=list)
    head: str = NOTHING
    last: int = 0


def digest(line: bytes) -> str:
    """The hash of a line without its end."""
    return hashlib.sha256(line).hexdigest()


def linked(written: str, tail: Sequence[bytes], opens: bool) -> bytes:
    """A line of JSON with its number and the hash of the last line of `tail`; `opens`: it is the first of its file."""
    number = max((_number(_read(each)) for each in tail), default=0) + 1
    link: dict[str, Any] = {"n": number, "prev": digest(tail[-1]) if tail else NOTHING}
    if opens:
        link["opens"] = True
    return f"{json.dumps(link)[:-1]}, {written[1:]}".encode()


def check(paths: Sequence[Path], expected: Iterable[str] = ()) -> Checked:
    """Checks files, the oldest first, as one chain; a file that is not there is passed over. Raises OSError.

    `expected` are hashes that were noted earlier: each must be that of a line that is still there.
    """
    found, before, wanted = Checked(), None, set(expected)
    missing = ""
    for path in paths:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            missing = missing or path.name
            continue
        first = _read(content.partition(b"\n")[0]) or {}
        if before is None and missing and first.get("opens") and _number(first) > 1:
            found.broken.append(Break(missing, 0, "the file that was set aside is gone"))
        lines = content.split(b"\n")
        whole = lines.pop() == b""
        if not whole:
            lines = content.split(b"\n")
        for number, line in enumerate(lines, 1):
            _follow(found, before, line, Break(path.name, number, ""), whole or number < len(lines))
            before = line
            found.head = digest(line)
            wanted.discard(found.head)
    for head in sorted(wanted):
        found.broken.append(
            Break("", 0, f"the line with hash {head[:64]} is gone: the end was cut off, or all was made anew")
        )
    del found.broken[_SHOWN:]
    return found


def _follow(found: Checked, before: bytes | None, line: bytes, at: Break, ended: bool) -> None:
    """Takes one line into account."""
    read = _read(line)
    if read is None or "prev" not in read:
        if read is not None and found.lines == 0:
            found.older += 1
        elif read is not None:
            _broken(found, at, "this line is in no chain: put in by hand, or written by an older version")
        elif not ended:
            found.torn.append(Break(at.file, at.line, "the last line is cut off: by a crash, a full disk, or by hand"))
        else:
            found.torn.append(Break(at.file, at.line, "this line was cut off while it was written"))
        return
    number = _number(read)
    if before is None:
        if not read.get("opens"):
            _broken(found, at, f"lines before number {number} are gone, and no file was set aside there")
    elif read["prev"] != digest(before):
        if found.torn and found.torn[-1].line == at.line - 1:
            found.torn.pop()  # what is left of it is not what was: no crash does that
        _broken(found, at, f"what stands before this line was changed, put in or taken out{_gap(found, number)}")
    elif found.lines and number != found.last + 1:
        _broken(found, at, f"number {number} comes after number {found.last}{_gap(found, number)}")
    found.lines, found.last = found.lines + 1, number


def _gap(found: Checked, number: int) -> str:
    gone = number - found.last - 1
    return f": {gone} lines are gone" if found.lines and gone > 0 else ""


def _broken(found: Checked, at: Break, what: str) -> None:
    if len(found.broken) < _SHOWN:
        found.broken.append(Break(at.file, at.line, what))


def _read(line: bytes) -> dict[str, Any] | None:
    """The object in a line, None where there is none."""
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _number(read: dict[str, Any] | None) -> int:
    """The number of a line; 0 where it has none."""
    number = (read or {}).get("n", 0)
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 62 else 0
