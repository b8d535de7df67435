"""When a job is known to have been watched, and when it did not train meanwhile. Moments are Unix seconds."""

from collections.abc import Iterable, Iterator, Sequence

from hangdog_models.recovery.outage_cost import Outage
from hangdog_models.recovery.recovery_history import Began, Entry, OutageOpened, Progressed

Span = tuple[float, float]


def watching(
    history: Sequence[Entry], until: float, found: Iterable[Outage]
) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The time that a history tells of, and what of it was lost: outages, `found` in it, and starts. Spans may overlap.

    It is known `until` then, its last entry or later. An outage that lasted from one supervisor to the next is known to have been one; else nobody knows what lay between them.
    """
    end = max(history[-1].at, until)
    lost = [(one.since, end if one.over is None else one.over) for one in found]
    lost += _starts(history)
    return (*_stretches(history, end), *lost), tuple(lost)


def covered(spans: Iterable[Span], since: float, until: float) -> float:
    """Seconds that the spans cover together within the time of the report."""
    total, reached = 0.0, since
    for begin, end in sorted(spans):
        begin, end = max(begin, reached), min(end, until)
        if end > begin:
            total, reached = total + end - begin, end
    return total


def _stretches(history: Sequence[Entry], end: float) -> Iterator[Span]:
    """When somebody is known to have watched: from each opening to the last entry before the next one, or to the end."""
    began, last = history[0].at, history[0].at
    for entry in history:
        if isinstance(entry, OutageOpened):
            yield began, last
            began = entry.at
        last = entry.at
    yield began, end


def _starts(history: Sequence[Entry]) -> Iterator[Span]:
    """From each time that somebody began to supervise until the job got on, as far as it tells of steps."""
    trains = Progressed if any(isinstance(entry, Progressed) for entry in history) else Began
    opened: float | None = None
    last = history[0].at
    for entry in history:
        if opened is not None and isinstance(entry, OutageOpened | trains):
            yield opened, entry.at if isinstance(entry, trains) else last
            opened = None
        if isinstance(entry, OutageOpened):
            opened = entry.at
        last = entry.at
    if opened is not None:
        yield opened, last
