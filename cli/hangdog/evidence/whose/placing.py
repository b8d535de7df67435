"""Finds out where ranks run and whose evidence is when file names alone do not say it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hangdog.evidence.content import OWNERLESS, SELF_NAMED, Failure, Logged, StackFile
from hangdog.evidence.machine_names import machine_in, only_machine
from hangdog.evidence.naming import Name
from hangdog.evidence.placed import Placed
from hangdog.evidence.whose.numbered import numbered
from hangdog_models.ranks import MAX_RANK, Rank, format_ranks
from hangdog_models.reading.logs.training_log import Stream
from hangdog_models.reading.stacks import capture_failure
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.topology import Layout

#: The name of a machine that a layout derives from `gpus_per_node`.
_NUMBERED = re.compile(r"node-(\d{1,7})")


@dataclass(slots=True)
class Placing:
    """The evidence that has a rank now; per path the reason why other evidence has none; remarks for the reader."""

    placed: list[Placed] = field(default_factory=list)
    unused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def with_folders(layout: Layout, placed: Iterable[Placed]) -> tuple[Layout, tuple[str, ...]]:
    """The declared layout and the machines of `machine-<NAME>` folders for ranks it places nowhere; what contradicts it.

    A rank is on a machine when a file of its folder is called after it, or a log there holds lines of it.
    """
    declared = {rank: machine for machine, ranks in layout.machines.items() for rank in ranks}
    found: dict[Rank, str] = {}
    notes: dict[str, None] = {}
    names = (name for file in placed for name in (file.name, *_speakers(file)))
    for name in sorted(names, key=lambda name: (name.path, name.rank or 0)):
        if name.rank is None or name.machine is None:
            continue
        machine = declared.get(name.rank) or found.setdefault(name.rank, name.machine)
        if machine != name.machine:
            notes[f"rank {name.rank} is on machine {machine}, but has a file in machine-{name.machine}"] = None
    machines = dict(layout.machines)
    for rank, machine in sorted(found.items()):
        machines[machine] = (*machines.get(machine, ()), rank)
    return replace(layout, machines=machines), tuple(notes)


def _speakers(file: Placed) -> Iterable[Name]:
    """The ranks whose lines, or stacks, a file holds that is not called after one; a stack may name its machine itself.

    So may a failure: the tool that reached nobody says at which machine.
    """
    if isinstance(file.content, Failure) and file.name.machine is None:
        yield replace(file.name, machine=capture_failure.host_of(file.content.message))
    if file.name.rank is None and isinstance(file.content, Logged):
        for stream in file.content.streams:
            if stream.own and stream.rank is not None:
                yield replace(file.name, rank=stream.rank)
    elif isinstance(file.content, StackFile):
        for process in file.content.processes:
            for rank in process.ranks:
                yield replace(file.name, rank=rank, machine=process.host or file.name.machine)


def place(found: Sequence[Placed], layout: Layout) -> Placing:
    """Gives ranks to evidence whose files name none: by the number at the end of their names, else where there is one way.

    For stacks that is when a machine's folder (or a bundle without any rank in its names) holds as many processes as the layout
    puts there: launchers start local ranks in order, so process ids ascend with ranks. The machine is right in any case.
    """
    found, notes = numbered(found, layout)
    placing = Placing(notes=notes)
    for placed in found:
        if isinstance(placed.content, Logged):
            machine = placed.name.machine or machine_in(placed.name.path, layout)
            name = replace(placed.name, machine=machine)
            streams = _of_ranks(placed.content, machine or only_machine(layout), layout)
            placing.placed.append(replace(placed, name=name, content=streams))
        elif placed.name.rank is not None or isinstance(placed.content, SELF_NAMED):
            placing.placed.append(placed)
    taken = {placed.name.rank for placed in placing.placed if not isinstance(placed.content, OWNERLESS)}
    nameless: dict[tuple[str | None, int | None], list[Placed]] = {}
    for placed in sorted(found, key=lambda placed: placed.name.path):
        if placed.name.rank is None and not isinstance(placed.content, SELF_NAMED):
            nameless.setdefault((placed.name.machine, placed.name.round), []).append(placed)
    for (machine, _), files in nameless.items():
        _give(placing, files, _expected(layout, machine, bool(taken)), taken)
    for path in {placed.name.path for placed in placing.placed} & placing.unused.keys():
        placing.notes.append(f"{path}: not all stacks in it are used, nothing tells the ranks of the others")
        del placing.unused[path]
    return placing


def ranks_of_machine(machine: str | None, layout: Layout) -> tuple[Rank, ...]:
    """The ranks on a machine, ascending, as far as the layout tells; launchers start local ranks in this order."""
    ranks = tuple(sorted(layout.machines.get(machine or "", ())))
    if not ranks and layout.ranks_per_machine and (number := _NUMBERED.fullmatch(machine or "")):
        first = int(number[1]) * layout.ranks_per_machine
        ranks = tuple(Rank(rank) for rank in range(first, min(first + layout.ranks_per_machine, MAX_RANK)))
    return ranks


def _of_ranks(logged: Logged, machine: str | None, layout: Layout) -> Logged:
    """The same with the rank of each process of which the log tells only its number on the machine."""
    ranks = ranks_of_machine(machine, layout)
    return replace(logged, streams=tuple(_of_rank(stream, ranks) for stream in logged.streams))


def _of_rank(stream: Stream, ranks: Sequence[Rank]) -> Stream:
    if stream.rank is not None or stream.local is None or stream.local >= len(ranks):
        return stream
    rank = ranks[stream.local]
    findings = tuple(
        finding if finding.rank is not None else replace(finding, rank=rank) for finding in stream.findings
    )
    counters = replace(stream.counters, rank=rank) if stream.counters else None
    return replace(stream, rank=rank, counters=counters, findings=findings)


def _expected(layout: Layout, machine: str | None, some_named: bool) -> tuple[Rank, ...]:
    """The ranks that evidence without a rank can be of; empty when nothing tells."""
    if machine is not None:
        return layout.machines.get(machine, ())
    world = layout.world_size or layout.product() or 0
    return () if some_named else tuple(Rank(rank) for rank in range(world))


def _give(placing: Placing, files: Sequence[Placed], expected: tuple[Rank, ...], taken: set[Rank | None]) -> None:
    dumped: list[tuple[int, Name, DumpedProcess, StackFile]] = []
    for file in files:
        placing.unused[file.name.path] = "no rank in its name: call it rank<N>"
        if isinstance(file.content, StackFile):
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
