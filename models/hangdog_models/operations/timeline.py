"""One stretch of a job's life that is known without a gap, whoever tells of it."""

from dataclasses import dataclass

from hangdog_models.recovery.recovery_history import Entry


@dataclass(frozen=True, slots=True)
class Timeline:
    """A job's history, never empty and in the order in which it happened, and until when it is known (Unix seconds)."""

    job: str
    history: tuple[Entry, ...]
    until: float
