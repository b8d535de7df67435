"""What was seen of one rank: each of its processes as the last look that saw its stacks shows it, or as one look does."""

from collections.abc import Sequence
from dataclasses import dataclass

from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Round
from hangdog_models.stack import TRAINER, ProcessTrace, Thread


@dataclass(frozen=True, slots=True)
class RankView:
    """A process as the look of this number shows it."""

    look: int
    trace: ProcessTrace


def of_rank(rounds: Sequence[Round], rank: Rank, look: int | None = None) -> tuple[RankView, ...]:
    """The processes of a rank, its trainer first; empty where nothing tells of it. `look` asks for one look's view."""
    found: dict[str, RankView] = {}
    for round_ in rounds:
        if look is not None and round_.number != look:
            continue
        for trace in round_.traces:
            before = found.get(trace.role)
            if trace.rank == rank and (trace.threads or before is None or not before.trace.threads):
                found[trace.role] = RankView(round_.number, trace)
    return tuple(found[role] for role in sorted(found, key=lambda role: (role != TRAINER, role)))


def alike(threads: Sequence[Thread], main: Thread | None) -> tuple[tuple[Thread, ...], ...]:
    """The threads of a process, those together that stand alike at the same lines; the one that trains comes first."""
    groups: dict[object, list[Thread]] = {}
    for thread in sorted(threads, key=lambda thread: thread is not main):
        groups.setdefault("main" if thread is main else (thread.frames, thread.active, thread.gil), []).append(thread)
    return tuple(map(tuple, groups.values()))
