"""Finds training processes in a process table, with no configuration: who is a rank's trainer, and who belongs to it.

A trainer is the topmost Python process that carries a rank in its environment; below it everything is its own. Launchers
carry ranks too (a pod's RANK counts nodes, Slurm's counts launchers), and are told by their program or by their children.
So do all processes of a Ray cluster that was started as a task: theirs is the task's rank, and none of their own. A worker of
Ray Train has a rank of its own, which Ray announces. Others carry none: their command line or their connections may tell it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePath

from hangdog_agent.discovery import rank_sets, tensorflow
from hangdog_agent.discovery.announced import Announced
from hangdog_agent.discovery.command_line import SILENT, CommandLine, number
from hangdog_agent.discovery.config_sizes import ConfigSizes
from hangdog_agent.discovery.environ_names import (
    DIAGNOSIS,
    JOB_NAMES,
    MEETING,
    OWN_RANKS,
    PLACES,
    PORT,
    RESTARTS,
    SELF_STARTED,
    SLURM_RANK,
    STEP,
    TF_CONFIG,
    TOPOLOGY,
    UNNAMED,
    WITH_SIZE,
)
from hangdog_agent.discovery.launchers import RAYLET, launches
from hangdog_agent.discovery.owners import job_key
from hangdog_agent.discovery.rank_sets import Claim
from hangdog_agent.discovery.self_started import Started, ranks
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.ranks import Rank

#: A job's name and topology are printed and sent; longer ones are cut.
_MOST_CHARACTERS = 200

#: What stays the same for one process only: its pid, which is used again, and when it started.
Key = tuple[int, int]

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?( \(deleted\))?")


class ProcessRole(StrEnum):
    """What a process does for its rank; with a number it makes the role (`dataloader-0`)."""

    TRAINER = "trainer"
    DATALOADER = "dataloader"
    CHECKPOINT = "checkpoint"
    COMPILE = "compile"
    CHILD = "child"


@dataclass(frozen=True, slots=True)
class Process:
    """One row of the process table: `environ` holds allowed names only, `started` counts clock ticks after boot.

    `announced` is what its framework or its connections say of it elsewhere than in its environment, `options` what its command
    line does. `owner` and `container` (the pod or
    container it runs in, empty for none) are the kernel's words.
    """

    pid: int
    parent: int
    started: int
    state: str
    comm: str
    python: bool
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] | None = None
    cpu_ticks: int = 0
    announced: Announced | None = None
    options: CommandLine = SILENT
    owner: Owner = UNKNOWN
    container: str = ""

    @property
    def key(self) -> Key:
        """What tells this process from all others."""
        return self.pid, self.started


@dataclass(frozen=True, slots=True)
class RankProcesses:
    """A process that belongs to a rank of a job; `world_size` is 0 and `topology` empty when nobody announced them.

    `source` is where its rank stands, in words, and `presumed` whether that is no certain word for which rank it is.
    `owner` is that of the rank's trainer. `rendezvous` is where the ranks of a job without a name meet. `contested`: another
    container has a trainer of the same rank and job, which began later. `part` is what tells its set of ranks from others under
    the job's name, and `whole` that name where there are several and `job` names one. `configs` are what the files say that its
    command line names, as far as they were read.
    """

    job: str
    rank: Rank
    kind: ProcessRole
    process: Process
    world_size: int = 0
    topology: str = ""
    owner: Owner = UNKNOWN
    rendezvous: str = ""
    contested: bool = False
    source: str = ""
    presumed: bool = False
    part: str = ""
    whole: str = ""
    configs: tuple[ConfigSizes, ...] = ()

    @property
    def key(self) -> str:
        """What tells its job from all others on this machine: jobs of one name and two owners are two."""
        return job_key(self.job, self.owner)


@dataclass(frozen=True, slots=True)
class _LaunchPlace:
    rank: Rank
    world: int
    strength: int
    source: str
    presumed: bool = False

    def same(self, other: "_LaunchPlace") -> bool:
        return self.rank == other.rank and (self.world == other.world or not self.world or not other.world)


def is_python(executable: str, arguments: Sequence[str]) -> bool:
    """Whether a process runs Python, by its program or command line; never by its name, which torch changes."""
    return any(_PYTHON.fullmatch(PurePath(path).name) for path in (executable, *arguments[:1]))


def find(
    processes: Iterable[Process],
    match: tuple[str, str] | None = None,
    without: Collection[int] = (),
    apart: Collection[str] = (),
) -> tuple[RankProcesses, ...]:
    """All members of all jobs in the table, by job and rank, each trainer before its children.

    `match` keeps the trainers whose environment has that value under that name; `without` are pids that are never trainers.
    `apart` are the keys of names under which several sets of ranks were seen before.
    """
    table = {process.pid: process for process in processes}
    own = _started_by_themselves(table)
    table |= own
    children: dict[int, list[Process]] = {}
    for process in sorted(table.values(), key=lambda process: (process.started, process.pid)):
        children.setdefault(process.parent, []).append(process)
    places = {
        process.pid: place
        for process in table.values()
        if process.python
        and process.pid not in without
        and not _launches(process)
        and (place := _place(process, table)) is not None
        and not _drives(place, children.get(process.pid, ()))
    }
    if match is not None:
        places = {pid: place for pid, place in places.items() if (table[pid].environ or {}).get(match[0]) == match[1]}
    tops = _tops(table, places, own.keys())
    found: dict[tuple[str, Rank], list[list[RankProcesses]]] = {}
    order = sorted(tops, key=lambda pid: _preference(table[pid], places[pid], _orphan(table[pid], table)))
    for family in _by_set([_family(table[pid], places[pid], children, own.keys()) for pid in order], table, apart):
        found.setdefault((family[0].key, family[0].rank), []).append(family)
    return tuple(member for _, families in sorted(found.items()) for member in _of_rank(families))


def _by_set(
    families: list[list[RankProcesses]], table: Mapping[int, Process], apart: Collection[str]
) -> list[list[RankProcesses]]:
    """The same, with names of their own for sets of ranks that have one name in common."""
    tops = [family[0] for family in families if family[0].process.state not in "ZX"]
    names = {*apart} | rank_sets.several(
        Claim(top.key, top.part, top.rank, top.world_size, _orphan(top.process, table)) for top in tops
    )
    return [
        [
            replace(member, job=rank_sets.called(top.job, top.part, top.job != UNNAMED), whole=top.job)
            for member in family
        ]
        if (top := family[0]).key in names and top.part
        else family
        for family in families
    ]


def _of_rank(families: list[list[RankProcesses]]) -> list[RankProcesses]:
    """The processes of one rank, of all that claim it, the best claim first.

    Where processes of several containers do, the one that began first keeps it and the others have no part in it. Else the
    better claim is the trainer's, and the others stay visible as children.
    """
    living = [family for family in families if family[0].process.state not in "ZX"]
    if contested := len({family[0].process.container for family in living}) > 1:
        first = min(living, key=lambda family: family[0].process.started)[0].process.container
        families = [family for family in families if family[0].process.container == first]
    best, *others = families
    members = [*best, *(_as_child(member) for family in others for member in family)]
    return [replace(member, contested=True) for member in members] if contested else members


def _started_by_themselves(table: Mapping[int, Process]) -> dict[int, Process]:
    """The rows of ranks that a program started by itself, its own among them, as if a launcher had started all of them."""
    rows = {
        process.pid: Started(process.pid, process.parent, *(number(environ.get(name, "")) for name in SELF_STARTED))
        for process in table.values()
        if process.python and (environ := process.environ) is not None and environ.keys().isdisjoint(OWN_RANKS)
    }
    found = ranks(rows.values())
    copies = {rows[pid].parent: table[pid] for pid in found if rows[pid].local}
    given: dict[int, Process] = {}
    for pid, rank in found.items():
        like = copies.get(pid, table[pid])  # the program itself set what its copies were given after it had begun
        environ = {**(like.environ or {}), **(table[pid].environ or {}), PLACES[0][0]: str(rank)}
        environ |= {"LOCAL_RANK": str(rows[pid].local or 0)}
        given[pid] = replace(
            table[pid], environ=environ, owner=table[pid].owner if table[pid].owner.known else like.owner
        )
    return given


def _tops(table: Mapping[int, Process], places: dict[int, _LaunchPlace], own: Collection[int] = ()) -> set[int]:
    """The candidates with no candidate above them, after those that turn out to be launchers were taken out.

    Of those in `own` one started the others, and all are ranks.
    """
    while True:
        tops: set[int] = set()
        launchers: set[int] = set()
        for pid, place in places.items():
            ancestors = _ancestors(table, pid)
            top = next((ancestor for ancestor in reversed(ancestors) if ancestor in places), None)
            if top is None or (pid in own and top in own):
                tops.add(pid)
            elif (
                places[top].strength < place.strength
                and (
                    not places[top].same(place)
                    # with one rank a machine both may have the same numbers: then a launcher between them tells
                    or any(_launches(table[between]) for between in ancestors[: ancestors.index(top)])
                )
            ):
                launchers.add(top)
        if not launchers:
            return tops
        places = {pid: place for pid, place in places.items() if pid not in launchers}


def _ancestors(table: Mapping[int, Process], pid: int) -> list[int]:
    """Parents upwards; a table read while processes come and go may even hold a circle."""
    found: list[int] = []
    above = table[pid].parent
    while above in table and above != pid and above not in found:
        found.append(above)
        above = table[above].parent
    return found


def _family(
    top: Process, place: _LaunchPlace, children: Mapping[int, list[Process]], beside: Collection[int] = ()
) -> list[RankProcesses]:
    environ = top.environ or {}
    names = [environ.get(name, "") for name in JOB_NAMES]
    if top.announced is not None:  # the run's own name is better than that of what started Ray
        names.insert(1, top.announced.run)
    job = next((name for name in names if name not in ("", "none")), "")[:_MOST_CHARACTERS]
    meeting = "" if job else environ.get(MEETING, "")[:_MOST_CHARACTERS]
    if not job:
        job = f"port-{top.announced.port}" if top.announced is not None and top.announced.port else UNNAMED
    topology = environ.get(TOPOLOGY, "")[:_MOST_CHARACTERS]
    # a loader or compile worker at the top has lost its trainer: it belongs to the rank, but does not stand for it
    kind = ProcessRole.TRAINER if _kind(top) is ProcessRole.CHILD else _kind(top)
    own = RankProcesses(
        job,
        place.rank,
        kind,
        top,
        place.world,
        topology,
        top.owner,
        meeting,
        source=place.source,
        presumed=place.presumed,
        part=_part(environ, place),
    )
    members = [own]
    below, seen = list(children.get(top.pid, ())), {top.pid}
    while below:
        process = below.pop(0)
        if process.pid not in seen and process.pid not in beside:
            seen.add(process.pid)
            members.append(replace(own, kind=_kind(process), process=process))
            below += children.get(process.pid, ())
    return members


def _part(environ: Mapping[str, str], place: _LaunchPlace) -> str:
    """What the ranks that belong together have in common: where they meet, or the Slurm step that started them."""
    if place.source == SLURM_RANK:
        return f"step {environ[STEP]}"[:_MOST_CHARACTERS] if STEP in environ else ""
    meets = environ.get(MEETING, ""), environ.get(PORT, "")
    return ":".join(meets)[:_MOST_CHARACTERS] if all(meets) else ""


def _as_child(member: RankProcesses) -> RankProcesses:
    kind = ProcessRole.CHILD if member.kind is ProcessRole.TRAINER else member.kind
    return replace(member, kind=kind)


def _orphan(process: Process, table: Mapping[int, Process]) -> bool:
    """Whether what started this process is gone."""
    return process.parent <= 1 or process.parent not in table


def _preference(process: Process, place: _LaunchPlace, orphan: bool) -> tuple[bool, bool, bool, int, int, int, int]:
    """Sorts first who deserves a rank most: no mere worker, alive, with its launcher, of the latest start, with the better
    evidence, having worked more.

    A process of an earlier start that nobody could kill has worked more than the one in its place.
    """
    return (
        _kind(process) is not ProcessRole.CHILD,
        process.state in "ZX",
        orphan,
        -(number((process.environ or {}).get(RESTARTS, "")) or 0),
        -place.strength,
        -process.cpu_ticks,
        process.pid,
    )


def _place(process: Process, table: Mapping[int, Process]) -> _LaunchPlace | None:
    environ = process.environ or {}
    if environ.get(DIAGNOSIS):  # first: the program that is replayed may announce itself as it does in its job
        return None
    if (announced := process.announced) is not None:
        return _LaunchPlace(announced.rank, announced.world_size, len(PLACES) + 2, announced.source, announced.presumed)
    lent: Mapping[str, str] | None = None
    for index, (rank_name, world_name) in enumerate(PLACES):
        rank = number(environ.get(rank_name, ""))
        if rank is None or (rank_name in WITH_SIZE and world_name not in environ):
            continue
        lent = _lent(process, table) if lent is None else lent
        if rank_name in lent and all(environ.get(name) == lent.get(name) for name in (rank_name, world_name)):
            continue
        if rank_name == SLURM_RANK and STEP not in environ and environ.get(world_name) != "1":
            continue
        # LOCAL_RANK beside RANK: set by what starts the ranks themselves, not by what starts launchers
        stronger = index == 0 and "LOCAL_RANK" in environ
        world = number(environ.get(world_name, "")) or _world(environ, rank, index)
        return _LaunchPlace(Rank(rank), world, len(PLACES) - index + stronger, rank_name)
    if (worker := tensorflow.worker(environ.get(TF_CONFIG, ""))) is not None:
        return _LaunchPlace(Rank(worker.rank), worker.workers, 1, TF_CONFIG)
    if process.options.rank is not None:
        return _LaunchPlace(Rank(process.options.rank), process.options.world_size, 0, process.options.option)
    return None


def _world(environ: Mapping[str, str], rank: int, index: int) -> int:
    """How many ranks there are by a later place that has the same rank: PMIx says it nowhere."""
    later = ((number(environ.get(name, "")), number(environ.get(size, ""))) for name, size in PLACES[index + 1 :])
    return next((size for other, size in later if other == rank and size), 0)


def _launches(process: Process) -> bool:
    return process.python and launches(process.comm, process.arguments)


def _drives(place: _LaunchPlace, children: Sequence[Process]) -> bool:
    """Whether a process called ray.init() to have others train; a rank that torchrun started may do so for its own ends."""
    return place.strength <= len(PLACES) and any(child.comm == RAYLET for child in children)


def _lent(process: Process, table: Mapping[int, Process]) -> Mapping[str, str]:
    """The environment of the Ray daemon above: it hands that to all its workers, whose rank it is not."""
    above = (table[pid] for pid in _ancestors(table, process.pid))
    return next((ancestor.environ or {} for ancestor in above if ancestor.comm == RAYLET), {})


def _kind(process: Process) -> ProcessRole:
    """What a child's name and command line tell; its frames may tell more, see capture/roles.py."""
    if process.comm == "pt_data_worker":
        return ProcessRole.DATALOADER
    if any("_inductor" in argument and "compile_worker" in argument for argument in process.arguments[:4]):
        return ProcessRole.COMPILE
    return ProcessRole.CHILD
