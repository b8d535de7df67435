"""What is told apart between the traces of one look, and between one look and the next; pure."""

from collections.abc import Iterable, Iterator

from hangdog_models.ranks import Rank
from hangdog_models.stack import TRAINER, Missing, ProcessTrace, Reason


def distinct(traces: Iterable[ProcessTrace]) -> list[ProcessTrace]:
    """At most one trace for each rank and role: the first one stands."""
    found: dict[tuple[Rank, str], ProcessTrace] = {}
    for trace in traces:
        found.setdefault((trace.rank, trace.role), trace)
    return list(found.values())


def restarted(traces: list[ProcessTrace], pids: dict[Rank, int]) -> Iterator[ProcessTrace]:
    """The traces, a trainer whose pid is not that of the look before marked; `pids` remembers from look to look."""
    for trace in traces:
        if trace.role != TRAINER or trace.pid is None:
            yield trace
            continue
        before = pids.get(trace.rank)
        pids[trace.rank] = trace.pid
        if before in (None, trace.pid) or trace.missing is not None:
            yield trace
            continue
        missing = Missing(Reason.RESTARTED, f"pid {before} in the look before, now {trace.pid}")
        yield ProcessTrace(trace.rank, trace.role, trace.pid, trace.threads, trace.state, missing)
