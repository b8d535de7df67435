"""Recognises a file by its content and reads it with the reader of its format."""

from dataclasses import dataclass, replace

from hangdog.evidence.naming import Name
from hangdog_models.collectives import RankCounters
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading import failure, flight_recorder, gdb, other, plain_pickle, proc, pyspy, pyspy_text, pystack
from hangdog_models.reading.document import looks_like_json, read_json
from hangdog_models.reading.dumped import DumpedProcess
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.printable import decoded
from hangdog_models.stack import Frame, ProcessState

#: Bytes that must be enough to tell a format; a command line of a few KB may stand before py-spy's first thread.
_HEAD = 1 << 15


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
    """Evidence of a kind that no reader reads, or a file that is no evidence at all (`kind` is empty)."""

    kind: str = ""


Content = Stacks | ProcessState | Failure | RankCounters | Unused

#: Readers of stacks in text form; the first that recognises a text reads it.
_STACK_TEXTS = (
    (pyspy_text.recognises, pyspy_text.read, "the text of py-spy dump", False),
    (pystack.recognises, pystack.read, "the text of pystack", False),
    (gdb.recognises, gdb.read, "the text of gdb", True),
)


def read_content(name: Name, data: bytes, limits: Limits) -> Content:
    """What a file holds; raises UnreadableEvidence when it claims to be a format and is not."""
    if name.path.endswith(".error.txt"):
        return Failure(data[: limits.text].decode("utf-8", "replace"))
    if plain_pickle.recognises(data):
        return _read_document(name, plain_pickle.read_pickle(data, limits), limits)
    head = data[:_HEAD].decode("utf-8", "replace").lstrip("\ufeff")
    if looks_like_json(head):
        try:
            return _read_document(name, read_json(decoded(data, "JSON"), limits), limits)
        except UnreadableEvidence:
            if kind := other.kind_of(head):  # ncclras 2.28 writes JSON that is none
                return Unused(kind)
            raise
    for recognises, read, what, native_only in _STACK_TEXTS:
        if recognises(head):
            return Stacks(read(decoded(data, what), limits), native_only)
    if proc.recognises_status(head):
        return proc.read_status(decoded(data, "/proc/<pid>/status"), limits)
    if failure.recognises(
        head
    ):  # the dump that failed lies where its output should: `py-spy dump ... > rank3.txt 2>&1`
        return Failure(head[: limits.text])
    return Unused(other.kind_of(head))


def shared(stacks: Stacks, seen: dict[tuple[Frame, ...], tuple[Frame, ...]]) -> Stacks:
    """The same stacks made of the frames in `seen` where equal ones were read before: most ranks stand where others do."""
    processes = tuple(
        replace(p, threads=tuple(replace(t, frames=seen.setdefault(t.frames, t.frames)) for t in p.threads))
        for p in stacks.processes
    )
    return replace(stacks, processes=processes)


def _read_document(name: Name, document: object, limits: Limits) -> Content:
    """What a JSON document, or the plain data of a pickle, is."""
    if pyspy.recognises(document):
        return Stacks(pyspy.read(document, limits))
    if flight_recorder.recognises(document):
        return flight_recorder.read(document, name.rank, limits)
    if proc.recognises(document):
        return proc.read(document, limits)
    if name.path.endswith(".proc.json"):
        raise UnreadableEvidence("not a process state: pid and state are missing")
    return Unused(other.kind_of_document(document))
