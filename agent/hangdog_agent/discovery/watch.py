"""Remembers which trainers run here, so that one that ended is known to have been there."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hangdog_agent.discovery.config_sizes import ConfigSizes
from hangdog_agent.discovery.discover import Key, Process, ProcessRole, RankProcesses, find
from hangdog_agent.discovery.environ_names import SWITCH_KINDS, SWITCHES, UNNAMED
from hangdog_agent.discovery.owners import job_key
from hangdog_agent.discovery.parallel_sizes import topology
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_models.owner import UNKNOWN, Owner, OwnerKind
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.printable import printable

#: Names of this very machine: who meets there spans no other one.
HERE = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0", "localhost.localdomain"})
#: How a meeting point of this machine alone is announced: no other machine's ranks can meet there.
_HERE = "localhost"
#: How what Slurm tells of a machine's place ends: the tree's leaf, or a block, and then the machine.
_ABOVE_NODE = (["switch", "node"], ["block", "node"])
#: Characters of a switch's name that are told.
_SWITCH = 100


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A job on this machine: its living ranks, ascending; `world_size` 0 and `topology` empty when not announced.

    `owner`, `rendezvous` are as in `Member`; `contested` are the ranks that several containers claim. `pods` are the UIDs of
    the pods that its trainers run in. `sources` are where its ranks stand, and `notes` what is not certain of all this. `switch`
    is that of this machine, where Slurm tells it.
    """

    name: str
    ranks: tuple[Rank, ...]
    world_size: int
    topology: str
    owner: Owner = UNKNOWN
    rendezvous: str = ""
    contested: tuple[Rank, ...] = ()
    pods: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    switch: str = ""

    @property
    def key(self) -> str:
        """As `Member.key`."""
        return job_key(self.name, self.owner)


@dataclass(frozen=True, slots=True)
class _FoundMembers:
    """What was found in a process table, and with what."""

    rows: Sequence[Process]
    apart: frozenset[str]
    members: tuple[RankProcesses, ...]


class Configs(Protocol):
    """Reads the configuration files that trainers name, with their users' rights and without ever waiting for one."""

    def look(self, trainers: Sequence[RankProcesses]) -> Mapping[Key, tuple[ConfigSizes, ...]]:
        """What is known by now of the files of these trainers."""
        ...

    def close(self) -> None:
        """Ends what reads them."""
        ...


class Watch:
    """Looks for training processes, and keeps those that ended while their job went on (or for `forget_s` seconds)."""

    def __init__(
        self,
        process_table: ProcessTable,
        match: tuple[str, str] | None,
        without: Sequence[int],
        forget_s: float,
        configs: Configs | None = None,
    ) -> None:
        """`match` and `without` are as in `find`; without `configs` no file is opened."""
        self._configs = configs
        self._process_table = process_table
        self._match = match
        self._without = tuple(without)
        self._forget_s = forget_s
        self._trainers: dict[tuple[str, Rank], tuple[RankProcesses, float]] = {}
        self._found: _FoundMembers | None = None
        self._lock = threading.Lock()

    def see(self) -> tuple[RankProcesses, ...]:
        """All members of all jobs on this machine now."""
        members = self._find(self._process_table.take(), self._apart())
        trainers = [member for member in members if member.kind is ProcessRole.TRAINER]
        self._keep(trainers, time.monotonic())
        stated = self._configs.look(trainers) if self._configs is not None else {}
        return tuple(
            replace(member, configs=stated[member.process.key]) if member.process.key in stated else member
            for member in members
        )

    def _find(self, rows: Sequence[Process], apart: frozenset[str]) -> tuple[RankProcesses, ...]:
        """As `find`, which costs more than listing the table: where nothing has changed, what it found before."""
        with self._lock:
            found = self._found
        if found is None or found.apart != apart or found.rows != rows:
            found = _FoundMembers(rows, apart, find(rows, self._match, self._without, apart))
            with self._lock:
                self._found = found
        return found.members

    def close(self) -> None:
        """Ends what it has started."""
        if self._configs is not None:
            self._configs.close()

    def known(self) -> tuple[RankProcesses, ...]:
        """The trainers seen last for each rank, those that ended since included."""
        with self._lock:
            return tuple(member for member, _ in self._trainers.values())

    def ranks(self) -> dict[int, Rank]:
        """The ranks of those trainers that still run, by their pid, which may be another process's by now."""
        found = {}
        for member in self.known():
            now = self._process_table.proc.stat(member.process.pid)
            if now is not None and now.started == member.process.started:
                found[member.process.pid] = member.rank
        return found

    def _apart(self) -> frozenset[str]:
        """The keys of names under which there were several sets of ranks: one that is alone for a moment keeps its own."""
        return frozenset(job_key(member.whole, member.owner) for member in self.known() if member.whole)

    def _keep(self, trainers: Sequence[RankProcesses], now: float) -> None:
        with self._lock:
            alive = {(member.key, member.process.key) for member in trainers}
            went_on = {member.key for member, _ in self._trainers.values() if (member.key, member.process.key) in alive}
            living = {member.key for member in trainers}
            # a job none of whose trainers went on has been started anew: the ranks of its last life are no longer missed
            self._trainers = {
                key: (member, seen)
                for key, (member, seen) in self._trainers.items()
                if member.key in went_on or (member.key not in living and now - seen < self._forget_s)
            }
            self._trainers |= {(member.key, member.rank): (member, now) for member in trainers}


def jobs(members: Sequence[RankProcesses]) -> tuple[LocalJob, ...]:
    """The jobs these members belong to, by name and owner."""
    trainers: dict[str, list[RankProcesses]] = {}
    for member in members:
        if member.kind is ProcessRole.TRAINER:
            trainers.setdefault(member.key, []).append(member)
    return tuple(_local(trainers[key]) for key in sorted(trainers))


def _local(trainers: Sequence[RankProcesses]) -> LocalJob:
    meetings = {member.rendezvous for member in trainers} - {""}
    parts = {member.part for member in trainers} - {""}
    named = trainers[0].job != UNNAMED
    world = max(member.world_size for member in trainers)
    announced = next((member.topology for member in trainers if member.topology), "")
    files = next((member.configs for member in trainers if member.configs), ())
    sizes, notes = topology(announced, [member.process.options for member in trainers], world, files)
    return LocalJob(
        name=trainers[0].job,
        ranks=tuple(sorted(member.rank for member in trainers)),
        world_size=world,
        topology=sizes,
        owner=trainers[0].owner,
        rendezvous=_HERE if meetings & HERE else min(meetings, default="") or (min(parts, default="") if named else ""),
        contested=tuple(sorted(member.rank for member in trainers if member.contested)),
        pods=tuple(
            sorted({member.process.container for member in trainers if member.owner.kind is OwnerKind.PODS} - {""})
        ),
        sources=tuple(sorted({member.source for member in trainers} - {""})),
        notes=(*_presumed(trainers), *_one_of_several(trainers[0]), *notes),
        switch=_switch(trainers),
    )


def _switch(trainers: Sequence[RankProcesses]) -> str:
    """The leaf switch or block above this machine; empty where its trainers do not tell, or not the same."""
    found = set()
    for environ in (trainer.process.environ or {} for trainer in trainers):
        parts, kinds = environ.get(SWITCHES, "").split("."), environ.get(SWITCH_KINDS, "").split(".")
        if len(parts) == len(kinds) and kinds[-2:] in _ABOVE_NODE:
            found.add(printable(parts[-2], _SWITCH))
    return found.pop() if len(found) == 1 else ""


def _one_of_several(trainer: RankProcesses) -> tuple[str, ...]:
    if not trainer.whole:
        return ()
    return (f"several sets of ranks are called {trainer.whole}: this is the one of {trainer.part}",)


def _presumed(trainers: Sequence[RankProcesses]) -> tuple[str, ...]:
    by_source: dict[str, list[Rank]] = {}
    for member in trainers:
        if member.presumed:
            by_source.setdefault(member.source, []).append(member.rank)
    return tuple(
        f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ranks(sorted(ranks))}: which process has which rank is presumed, by {source}"
        for source, ranks in sorted(by_source.items())
    )
