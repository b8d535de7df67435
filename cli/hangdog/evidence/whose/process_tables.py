"""Finds out which ranks the processes of a table are: by their ids in stacks, by what their commands tell, else by their order."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hangdog.evidence.content import OWNERLESS, ListedProcesses, StackFile
from hangdog.evidence.machine_names import only_machine
from hangdog.evidence.placed import Placed
from hangdog.evidence.whose.placing import Placing, ranks_of_machine
from hangdog.evidence.whose.trainers import program_of, title_place
from hangdog_agent.discovery.launchers import launches
from hangdog_models.ranks import Rank
from hangdog_models.reading.processes.listed_process import ListedProcess
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.stack import TRAINER, ProcessState
from hangdog_models.topology import Layout

#: Programs that a rank is run by, and what processes call themselves that Ray or an inference server started.
_PYTHON = re.compile(r"(?:\S*/)?(?:python|pypy|pt_main)[\w.]{0,20}(?:\s|$)|ray::|\w+::\w+_[A-Z]{2}\d")
_IDLE, _HELPER = "ray::IDLE", "from multiprocessing."
#: What the kernel calls a rank that has ended, of which the table shows no command.
_ENDED = re.compile(r"python|pypy|pt_")
#: How many a note lists one by one.
_SHOWN = 8

#: A process by its machine, empty where nothing tells it, and its id.
_Process = tuple[str, int]
Key = TypeVar("Key")


@dataclass(slots=True)
class StatedRanks:
    """The states that have a rank, and remarks; per path the reason why a table tells nothing of a rank."""

    placed: list[Placed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unused: dict[str, str] = field(default_factory=dict)


def without_tables(found: Iterable[Placed]) -> tuple[list[Placed], list[Placed]]:
    """The evidence that is no table of processes, and the tables."""
    rest: list[Placed] = []
    tables: list[Placed] = []
    for placed in found:
        (tables if isinstance(placed.content, ListedProcesses) else rest).append(placed)
    return rest, tables


def by_command(tables: Sequence[Placed], rest: Sequence[Placed], layout: Layout) -> StatedRanks:
    """The states of processes of which no stack is known: their file, or their command, tells the rank, else their order does.

    Order counts only where nothing else of the bundle is of a rank; then the numbers are no ranks, and a note says so.
    """
    stacked = {process.pid for placed in rest for process in _stacks(placed)}
    free = [(table, row) for table in tables for row in _listed(table) if row.state.pid not in stacked]
    stated = StatedRanks()
    ranks: dict[_Process, Rank] = {}
    for table, row in free:
        rank = None if _starts(row) else _rank_of(row, table, layout)
        if rank is not None:
            ranks.setdefault(_key(table, row), rank)
    if not ranks and layout == Layout() and not any(map(_is_of_rank, rest)):
        ranks = _numbers(tables)
        stated.notes += _note(ranks)
    states: dict[tuple[_Process, int | None], tuple[Placed, ProcessState]] = {}
    for table, row in free:
        if _key(table, row) in ranks:
            _add(states, (_key(table, row), table.name.round), table, row.state)
    stated.placed = [_of(table, ranks[key], state) for (key, _), (table, state) in states.items()]
    return stated


def _rank_of(row: ListedProcess, table: Placed, layout: Layout) -> Rank | None:
    if row.rank is not None:
        return row.rank
    if row.local is not None:
        ranks = ranks_of_machine(table.name.machine or only_machine(layout), layout)
        return ranks[row.local] if row.local < len(ranks) else None
    return table.name.rank if len(_listed(table)) == 1 else None


def joined(tables: Sequence[Placed], placing: Placing, layout: Layout, known: Iterable[Placed]) -> StatedRanks:
    """The states of processes whose stacks have a rank, found by their ids; `known` are those that have theirs already."""
    ranks: dict[int, set[Rank]] = {}
    machines = {rank: machine for machine, on in layout.machines.items() for rank in on}
    for placed in placing.placed:
        for process in list(_stacks(placed))[:1]:
            if placed.name.rank is not None and placed.name.role == TRAINER and process.pid is not None:
                ranks.setdefault(process.pid, set()).add(placed.name.rank)
    stated = StatedRanks()
    states: dict[tuple[Rank, int | None], tuple[Placed, ProcessState]] = {}
    for table in tables:
        for row in _listed(table):
            here = [
                rank
                for rank in ranks.get(row.state.pid, ())
                if table.name.machine is None or machines.get(rank, table.name.machine) == table.name.machine
            ]
            if len(here) == 1:
                _add(states, (here[0], table.name.round), table, row.state)
    stated.placed = [_of(table, rank, state) for (rank, _), (table, state) in states.items()]
    used = {placed.name.path for placed in (*known, *stated.placed)}
    beside = {placed.name.path for placed in placing.placed}
    for table in tables:
        if table.name.path not in used | beside:
            stated.unused[table.name.path] = (
                "nothing tells which ranks its processes are: dumps with their ids, or a column PPID, would"
            )
    return stated


def _key(table: Placed, row: ListedProcess) -> _Process:
    return table.name.machine or "", row.state.pid


def _add(states: dict[Key, tuple[Placed, ProcessState]], key: Key, table: Placed, state: ProcessState) -> None:
    """Keeps a state, or what it adds to the one that is known: a table shows the state of a process, strace its call."""
    first, known = states.get(key, (table, state))
    states[key] = (
        first,
        ProcessState(
            pid=known.pid,
            state=known.state or state.state,
            wchan=known.wchan or state.wchan,
            syscall=known.syscall or state.syscall,
            comm=known.comm or state.comm,
            cmdline=known.cmdline or state.cmdline,
        ),
    )


def _listed(table: Placed) -> tuple[ListedProcess, ...]:
    return table.content.rows if isinstance(table.content, ListedProcesses) else ()


def _stacks(placed: Placed) -> Iterator[DumpedProcess]:
    if isinstance(placed.content, StackFile):
        yield from placed.content.processes


def _of(table: Placed, rank: Rank, state: ProcessState) -> Placed:
    return Placed(replace(table.name, rank=rank, role=TRAINER), state, from_text=True)


def _is_of_rank(placed: Placed) -> bool:
    streams = getattr(placed.content, "streams", ())
    return not isinstance(placed.content, OWNERLESS) or any(stream.rank is not None for stream in streams)


def _numbers(tables: Sequence[Placed]) -> dict[_Process, Rank]:
    """A number for each trainer of the tables, by machine, number on it, and process id; else for each that was asked for."""
    places: dict[_Process, tuple[str, int, int]] = {}
    for table in tables:
        for row in trainers_of(_listed(table)):
            place = row.local if row.local is not None else title_place(row.state.cmdline)
            places[_key(table, row)] = (table.name.machine or "", -1 if place is None else place, row.state.pid)
    if not any(not row.asked for table in tables for row in _listed(table)):
        places = {
            _key(table, row): (table.name.machine or "", -1, row.state.pid)
            for table in tables
            for row in _listed(table)
        }
    return {key: Rank(number) for number, key in enumerate(sorted(places, key=places.__getitem__))}


def _note(ranks: Mapping[_Process, Rank]) -> Iterator[str]:
    listed = [f"{rank} is process {pid}{f' on {machine}' if machine else ''}" for (machine, pid), rank in ranks.items()]
    more = f", and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    if listed:
        yield f"nothing tells the ranks of these processes, so they are numbered: {', '.join(listed[:_SHOWN])}{more}"


def trainers_of(rows: Sequence[ListedProcess]) -> list[ListedProcess]:
    """The processes of a table that may be its ranks: those of the program that most run and that no other of them has started.

    None where the table shows neither whose child each is nor a number on the machine: workers of data loaders have the
    command of their rank. One that has ended counts if the others have the same parent.
    """
    running = [
        row for row in rows if _PYTHON.match(row.state.cmdline) and not _starts(row) and _works(row.state.cmdline)
    ]
    pids = {row.state.pid for row in running}
    running = [row for row in running if row.parent not in pids]
    numbered = [row for row in running if row.local is not None]
    if numbered:
        first: dict[int | None, ListedProcess] = {}
        for row in sorted(numbered, key=lambda row: row.state.pid):
            first.setdefault(row.local, row)
        running = list(first.values())
    elif any(row.parent is None and title_place(row.state.cmdline) is None for row in running):
        return []
    programs = Counter(program_of(row.state.cmdline) for row in running)
    most = max(programs.values(), default=0)
    chosen = [program for program, number in programs.items() if number == most]
    if most < 2 or len(chosen) > 1:
        return []
    found = [row for row in running if program_of(row.state.cmdline) == chosen[0]]
    parents = {row.parent for row in found} - {None, 1}
    ended = [row for row in rows if row.state.state in "ZX" and row.parent in parents and _ENDED.match(row.state.comm)]
    return [*found, *ended]


def _starts(row: ListedProcess) -> bool:
    return launches(row.state.comm, row.state.cmdline.split())


def _works(command: str) -> bool:
    return not command.startswith(_IDLE) and _HELPER not in command
