"""The report of NCCL's RAS subsystem (`ncclras`), as text."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from zlib import crc32

from hangdog_models.ranks import Rank
from worlds.timed.incident import Incident
from worlds.timed.layout import dimension

#: RAS calls a process dead that has not answered for so long.
_DEAD_S = 60.0


@dataclass(frozen=True, slots=True)
class _Class:
    """Communicators of one size, on as many machines, in one state."""

    size: int
    machines: int
    dim: str
    state: str


def write(incident: Incident, folder: Path, time: float, pids: Mapping[Rank, int], rng: Random) -> None:
    """Writes one report for the whole job, as any process of it gives it."""
    addresses = {name: f"10.0.{at // 250}.{at % 250 + 3}" for at, name in enumerate(incident.layout.machines)}
    place = folder / "ras"
    place.mkdir()
    lines = _Report(incident, time, pids, addresses, rng).lines()
    (place / "ncclras.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


class _Report:
    def __init__(
        self, incident: Incident, time: float, pids: Mapping[Rank, int], addresses: Mapping[str, str], rng: Random
    ) -> None:
        self._incident, self._time, self._pids, self._addresses, self._rng = incident, time, pids, addresses, rng
        hosts = incident.engine.hosts
        self._gone = [rank for rank in incident.layout.ranks if hosts[rank].halted or incident.frozen(rank)]
        self._counts = {
            group: {rank: hosts[rank].count(group, time) for rank in ranks}
            for group, ranks in incident.layout.groups.items()
            if len(ranks) > 1 and group != "second"
        }

    def lines(self) -> Iterator[str]:
        layout = self._incident.layout
        version = self._rng.choice(("2.24.3", "2.26.5", "2.27.5"))
        world, each, machines = layout.world_size, layout.per_machine, len(layout.machines)
        yield f"NCCL version {version} compiled with CUDA 12.{self._rng.choice((4, 6, 8))}"
        yield from ("CUDA runtime version 12080, driver version 12080", "", "Job summary", "===========", "")
        yield "  Nodes  Processes         GPUs  Processes     GPUs"
        yield "(total)   per node  per process    (total)  (total)"
        yield f"{machines:7} {each:10} {1:12} {world:10} {world:8}"
        yield from ("", f"Communicators... ({2.05 if self._gone else 0.0:.2f}s)", "=============", "")
        yield "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors"
        yield "    #  in group  per comm  per node  per comm  in group"
        found = sorted(self._classes().items(), key=lambda item: (-item[0].size, item[0].dim, item[0].state))
        for at, (of, groups) in enumerate(found):
            counts = (len(groups), of.machines, of.size // of.machines, of.size, of.size * len(groups))
            yield f"{at:5} " + " ".join(f"{count:9}" for count in counts) + f" {'RUNNING':>9}  {of.state}"
        errors = [
            *self._dead(),
            *(line for at, (of, groups) in enumerate(found) for line in self._missing(at, of, groups)),
        ]
        warnings = [line for at, (_, groups) in enumerate(found) for line in self._apart(at, groups)]
        if errors:
            yield from ("", "Errors", "======", "", *errors)
        if warnings:
            yield from ("", "Warnings", "========", "", *warnings)

    def _classes(self) -> Mapping[_Class, Sequence[str]]:
        found: defaultdict[_Class, list[str]] = defaultdict(list)
        layout = self._incident.layout
        for group, counts in self._counts.items():
            if not any(counts.values()):
                continue
            missing = any(rank in self._gone for rank in counts)
            state = "INCOMPLETE" if missing else "MISMATCH" if len(set(counts.values())) > 1 else "OK"
            machines = len({layout.machine(rank) for rank in counts})
            found[_Class(len(counts), machines, dimension(group), state)].append(group)
        return found

    def _dead(self) -> Iterator[str]:
        if not self._gone:
            return
        count, began = len(self._gone), self._incident.scene.began()
        if began is not None and self._time - began > _DEAD_S:
            yield "DEAD"
            yield f"  {count} job process{' is' if count == 1 else 'es are'} considered dead (unreachable via the RAS network)"
        else:
            yield "INCOMPLETE"
            yield f"  Missing communicator data from {count} job process{'' if count == 1 else 'es'}"
        for rank in self._gone:
            gpu = rank % self._incident.layout.per_machine
            yield f"  Process {self._pids[rank]} on node {self._address(rank)} managing GPU {gpu}"
        yield ""

    def _missing(self, at: int, of: _Class, groups: Sequence[str]) -> Iterator[str]:
        if of.state != "INCOMPLETE":
            return
        for number, group in enumerate(groups):
            ranks = self._incident.layout.groups[group]
            places = [str(place) for place, rank in enumerate(ranks) if rank in self._gone]
            yield f"#{at}-{number} ({self._hash(group)}) INCOMPLETE"
            one = len(places) == 1
            yield f"  Missing communicator data from {len(places)} rank{'' if one else 's'}"
            yield f"  The missing rank: {places[0]}" if one else f"  The missing ranks: {','.join(places)}"
            yield ""

    def _apart(self, at: int, groups: Sequence[str]) -> Iterator[str]:
        for number, group in enumerate(groups):
            ranks = self._incident.layout.groups[group]
            by_count: defaultdict[int, list[tuple[int, Rank]]] = defaultdict(list)
            for place, rank in enumerate(ranks):
                if rank not in self._gone:
                    by_count[self._counts[group][rank]].append((place, rank))
            if len(by_count) < 2:
                continue
            offset = Random(f"{self._incident.job.seed} {group} ras").randrange(200, 9000)
            yield f"#{at}-{number} ({self._hash(group)}) MISMATCH"
            yield "  Communicator ranks have different collective operation counts"
            for count, of in sorted(by_count.items(), key=lambda item: -len(item[1])):
                yield f"  {len(of)} rank{' has' if len(of) == 1 else 's have'} launched up to operation {count + offset}"
                if len(of) <= min(10, len(ranks) * 0.25):
                    yield from (self._rank(place, rank) for place, rank in of)
            yield ""

    def _rank(self, place: int, rank: Rank) -> str:
        gpu = rank % self._incident.layout.per_machine
        return f"  Rank {place} -- GPU {gpu} managed by process {self._pids[rank]} on node {self._address(rank)}"

    def _address(self, rank: Rank) -> str:
        return self._addresses[self._incident.layout.machine(rank)]

    def _hash(self, group: str) -> str:
        return f"{crc32((self._incident.job.seed + group).encode()) * 2654435761 % 2**64:016x}"
