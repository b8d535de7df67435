"""What is told apart between the traces of one look, and between one look and the next, and why ranks are not in it; pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from msgspec import structs

from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
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


def explained(snapshot: Snapshot, owners: Mapping[Rank, str], gone: Mapping[str, Missing]) -> Snapshot:
    """The snapshot with the reasons in `gone` for the ranks of those machines that are missing because no agent answered."""

    if not gone:
        return snapshot

    def better(trace: ProcessTrace) -> ProcessTrace:
        why = gone.get(owners.get(trace.rank, ""))
        silent = trace.missing is not None and trace.missing.reason is Reason.NO_AGENT
        return structs.replace(trace, missing=why) if why is not None and silent else trace

    rounds = (replace(round_, traces=tuple(map(better, round_.traces))) for round_ in snapshot.rounds)
    return replace(snapshot, rounds=tuple(rounds))
