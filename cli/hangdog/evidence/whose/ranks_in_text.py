"""Takes files with the stacks of several ranks apart, where their text says whose each stack is."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hangdog.evidence.content import Logged, StackFile
from hangdog.evidence.placed import Placed
from hangdog.evidence.whose.placing import ranks_of_machine
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.stack import TRAINER
from hangdog_models.topology import Layout


def by_rank(found: Iterable[Placed], layout: Layout) -> tuple[list[Placed], tuple[str, ...]]:
    """The same evidence with each rank's stacks apart, and remarks. What no line gives a rank stays with its file."""
    parts = [part for placed in found for part in _parts(placed, layout)]
    return _of_one_machine(parts, layout)


def _parts(placed: Placed, layout: Layout) -> list[Placed]:
    """One part for each rank that the text names; the ranks on a machine count where the layout says which those are."""
    if not isinstance(placed.content, StackFile):
        return [placed]
    machine = ranks_of_machine(placed.name.machine, layout)
    ranks: dict[Rank, list[DumpedProcess]] = {}
    rest: list[DumpedProcess] = []
    for process in placed.content.processes:
        whose = process.ranks
        if not whose and process.local is not None and process.local < len(machine):
            whose = (machine[process.local],)
        for rank in whose:
            ranks.setdefault(rank, []).append(process)
        if not whose:
            rest.append(process)
    parts = [_of_rank(placed, rank, processes) for rank, processes in ranks.items()]
    return [*([replace(placed, content=StackFile(tuple(rest)))] if rest else []), *parts]


def _of_rank(placed: Placed, rank: Rank, processes: Iterable[DumpedProcess]) -> Placed:
    name = replace(placed.name, rank=rank, role=TRAINER)
    return Placed(name, StackFile(tuple(processes)), from_text=True)


def _of_one_machine(parts: Sequence[Placed], layout: Layout) -> tuple[list[Placed], tuple[str, ...]]:
    """Takes ranks on the machine for the job's where one log holds all that is known, and nothing tells of a second machine."""
    loose = [part for part in parts if isinstance(part.content, StackFile) and part.name.rank is None]
    if len(loose) != 1 or loose[0].name.machine is not None or not isinstance(loose[0].content, StackFile):
        return list(parts), ()
    known = {process.local: process for process in loose[0].content.processes if process.local is not None}
    if not 1 < len(known) == len(loose[0].content.processes) or any(_goes_beyond(part, max(known)) for part in parts):
        return list(parts), ()
    world = layout.world_size or layout.product()
    if world is not None and world > (layout.ranks_per_machine or 0) and sorted(known) != list(range(world)):
        return list(parts), ()
    placed = [part for part in parts if part is not loose[0]]
    placed += [_of_rank(loose[0], Rank(local), (process,)) for local, process in known.items()]
    note = f"{loose[0].name.path}: its ranks on the machine are taken as ranks {format_ranks(known)} of the job"
    return placed, (note,)


def _goes_beyond(part: Placed, highest: int) -> bool:
    """Whether evidence speaks of a rank above the highest one on the machine; what is called after a rank may be of any."""
    ranks = [stream.rank for stream in part.content.streams] if isinstance(part.content, Logged) else [part.name.rank]
    return any(rank is not None and (rank > highest or rank == part.name.rank) for rank in ranks)
