"""What every stack reader returns: the processes a file speaks of, before anybody says whose they are."""

from dataclasses import dataclass

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.limits import Limits
from hangdog_models.stack import Thread


@dataclass(frozen=True, slots=True)
class DumpedProcess:
    """The threads of one process; `pid` None and `command` empty where the file does not tell."""

    pid: int | None
    threads: tuple[Thread, ...]
    command: str = ""


def check_frames(frames: int, limits: Limits) -> None:
    """Raises UnreadableEvidence when one thread has more frames than the limit."""
    if frames > limits.frames:
        raise UnreadableEvidence(f"a thread of {frames} frames; {limits.frames} are read (limit frames)")


def check_threads(threads: int, limits: Limits) -> None:
    """Raises UnreadableEvidence when one file has more threads than the limit."""
    if threads > limits.threads:
        raise UnreadableEvidence(f"more than {limits.threads} threads (limit threads)")
