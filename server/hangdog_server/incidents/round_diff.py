"""What is told apart between the traces of one look, and between one look and the next, and why ranks are not in it; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import structs

from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import TRAINER, Missing, ProcessTrace, Reason


def restarted(traces: list[ProcessTrace], pids: dict[Rank, int]) -> list[ProcessTrace]:
    """The traces, a trainer whose pid is not that of the look before marked; `pids` remembers from look to look."""
    now = {trace.rank: trace.pid for trace in traces if trace.role == TRAINER and trace.pid is not None}
    before = {rank: pids[rank] for rank, pid in now.items() if pids.get(rank, pid) != pid}
    pids.update(now)
    if not before:
        return traces
    return [_restarted(trace, before[trace.rank]) if trace.rank in before else trace for trace in traces]


def _restarted(trace: ProcessTrace, before: int) -> ProcessTrace:
    if trace.role != TRAINER or trace.missing is not None:
        return trace
    missing = Missing(Reason.RESTARTED, f"pid {before} in the look before, now {trace.pid}")
    return structs.replace(trace, missing=missing)


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


def contradicted(snapshot: Snapshot, conflicts: Iterable[str]) -> Snapshot:
    """The snapshot with a note of each thing that machines contradict each other about."""
    notes = tuple(f"machines contradict each other: {conflict}" for conflict in conflicts)
    return replace(snapshot, account=replace(snapshot.account, notes=(*snapshot.account.notes, *notes)))
