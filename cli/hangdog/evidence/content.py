"""Recognises a file by its content and reads it with the reader of its format."""

from dataclasses import dataclass

from hangdog.evidence.naming import Name
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading import proc, pyspy
from hangdog_models.reading.document import looks_like_json, read_json
from hangdog_models.reading.dumped import DumpedProcess
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.printable import decoded
from hangdog_models.stack import ProcessState

#: Bytes that must be enough to tell a format; py-spy, pystack and gdb all show themselves in their first lines.
_HEAD = 4096


@dataclass(frozen=True, slots=True)
class Stacks:
    """Stacks of one or several processes; `native_only` where the tool sees no Python frames (gdb)."""

    processes: tuple[DumpedProcess, ...]
    native_only: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a capture failed, in the tool's words."""

    words: str


@dataclass(frozen=True, slots=True)
class Unused:
    """Evidence without a reader, or a file that is no evidence at all (`kind` is empty)."""

    kind: str = ""


Content = Stacks | ProcessState | Failure | Unused


def read_content(name: Name, data: bytes, limits: Limits) -> Content:
    """What a file holds; raises UnreadableEvidence when it claims to be a format and is not."""
    if name.path.endswith(".error.txt"):
        return Failure(data[: limits.text].decode("utf-8", "replace"))
    head = data[:_HEAD].decode("utf-8", "replace").lstrip("\ufeff")
    if looks_like_json(head):
        return _read_json(name, data, limits)
    if proc.recognises_status(head):
        return proc.read_status(decoded(data, "/proc/<pid>/status"), limits)
    return Unused()


def _read_json(name: Name, data: bytes, limits: Limits) -> Content:
    document = read_json(decoded(data, "JSON"), limits)
    if pyspy.recognises(document):
        return Stacks(pyspy.read(document, limits))
    if proc.recognises(document):
        return proc.read(document, limits)
    if name.path.endswith(".proc.json"):
        raise UnreadableEvidence("not a process state: pid and state are missing")
    return Unused()
