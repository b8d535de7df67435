"""Reads the error file that torchelastic's `@record` writes for a process that ended with an exception."""

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_models.reading.json_document import int_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.logs import training_log
from hangdog_models.reading.logs.training_log import Stream

#: What the exception's own line is put behind where the file holds no traceback: a message alone is no proof of an end.
_WRITTEN = 'Traceback (most recent call last):\n  File "error.json", line 0, in record\n'
#: Latest time a file is believed to be written at, in Unix seconds: the year 2100.
_LATEST = 4_102_444_800


def recognises(document: object) -> bool:
    """Whether a JSON document is such a file."""
    return _parts(document) is not None


def _parts(document: object) -> tuple[str, dict[str, object]] | None:
    """The message and what stands beside it."""
    inside = document.get("message") if isinstance(document, dict) else None
    if not isinstance(inside, dict):
        return None
    message, beside = inside.get("message"), inside.get("extraInfo")
    return (message, beside) if isinstance(message, str) and isinstance(beside, dict) else None


def read(
    document: object, rank: Rank | None, local: int | None = None, limits: Limits = DEFAULTS
) -> tuple[Stream, ...]:
    """What the file says, as the log of a process would; raises UnreadableEvidence where it is none."""
    parts = _parts(document)
    if parts is None:
        raise UnreadableEvidence("not an error file of torchelastic: no message with extraInfo", code="wrong-schema")
    message, beside = parts
    callstack = beside.get("py_callstack")
    lines = callstack if isinstance(callstack, list) else [callstack]
    trace = "".join(line for line in lines if isinstance(line, str))[: limits.file_bytes]
    stamp = int_of(beside.get("timestamp"))
    # Older versions write the stack of the writer, which does not end with the exception.
    text = trace if trace.startswith("Traceback ") else f"{_WRITTEN}{message[: limits.text]}"
    return training_log.read(text, rank, limits, local, stamp if stamp is not None and 0 < stamp < _LATEST else None)
