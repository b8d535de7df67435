"""Finds out where ranks run and whose evidence is when file names alone do not say it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hangdog.evidence.content import Content, Stacks
from hangdog.evidence.naming import Name
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.dumped import DumpedProcess
from hangdog_models.topology import Layout


@dataclass(frozen=True, slots=True)
class Placed:
    """One file's evidence with whose it is."""

    name: Name
    content: Content


@dataclass(slots=True)
class Placing:
    """The evidence that has a rank now; per path the reason why other evidence has none; remarks for the reader."""

    placed: list[Placed] = field(default_factory=list)
    unused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def with_folders(layout: Layout, names: Iterable[Name]) -> tuple[Layout, tuple[str, ...]]:
    """The declared layout and the machines of `machine-<NAME>` folders for ranks it places nowhere; what contradicts it."""
    declared = {rank: machine for machine, ranks in layout.machines.items() for rank in ranks}
    found: dict[Rank, str] = {}
    notes: dict[str, None] = {}
    for name in sorted(names, key=lambda name: name.path):
        if name.rank is None or name.machine is None:
            continue
        machine = declared.get(name.rank) or found.setdefault(name.rank, name.machine)
        if machine != name.machine:
            notes[f"rank {name.rank} is on machine {machine}, but has a file in machine-{name.machine}"] = None
    machines = dict(layout.machines)
    for rank, machine in sorted(found.items()):
        machines[machine] = (*machines.get(machine, ()), rank)
    return replace(layout, machines=machines), tuple(notes)


def place(found: Sequence[Placed], layout: Layout) -> Placing:
    """Gives ranks to stacks whose files name none, where their number leaves one way to do it.

    That is when a machine's folder (or a bundle without any rank in its names) holds as many processes as the layout
    puts there: launchers start local ranks in order, so process ids ascend with ranks. The machine is right in any case.
    """
    placing = Placing([placed for placed in found if placed.name.rank is not None])
    taken = {placed.name.rank for placed in placing.placed}
    nameless: dict[tuple[str | None, int | None], list[Placed]] = {}
    for placed in sorted(found, key=lambda placed: placed.name.path):
        if placed.name.rank is None:
            nameless.setdefault((placed.name.machine, placed.name.round), []).append(placed)
    for (machine, _), files in nameless.items():
        _give(placing, files, _expected(layout, machine, bool(taken)), taken)
    return placing


def _expected(layout: Layout, machine: str | None, some_named: bool) -> tuple[Rank, ...]:
    """The ranks that evidence without a rank can be of; empty when nothing tells."""
    if machine is not None:
        return layout.machines.get(machine, ())
    world = layout.world_size or layout.product() or 0
    return () if some_named else tuple(Rank(rank) for rank in range(world))


def _give(placing: Placing, files: Sequence[Placed], expected: tuple[Rank, ...], taken: set[Rank | None]) -> None:
    dumped: list[tuple[int, Name, DumpedProcess, Stacks]] = []
    for file in files:
        placing.unused[file.name.path] = "no rank in its name: call it rank<N>"
        if isinstance(file.content, Stacks):
            dumped += [(p.pid or 0, file.name, p, file.content) for p in file.content.processes]
    pids = {pid for pid, *_ in dumped}
    if not dumped or len(dumped) != len(expected) or len(pids) < len(dumped) or 0 in pids or taken & set(expected):
        return
    for rank, (_, name, process, stacks) in zip(expected, sorted(dumped, key=lambda item: item[0]), strict=True):
        placing.placed.append(Placed(replace(name, rank=rank), replace(stacks, processes=(process,))))
        placing.unused.pop(name.path, None)
    paths = ", ".join(sorted({name.path for _, name, *_ in dumped})[:3])
    order = "" if len(expected) == 1 else " in the order of their process ids"
    placing.notes.append(f"no rank in the name of {paths}: taken as ranks {format_ranks(expected)}{order}")
