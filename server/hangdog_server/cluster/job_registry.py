"""Tells the jobs of the cluster apart: by name and owner, and those without a name by where their ranks meet.

A job is called by its name. Where two jobs have one name the later one is called `NAME@OWNER`, and so it is known to people,
in incidents and in the store, until it ends. Several sets of ranks may have one name and one owner, as the trainers and the
rollout workers of a Slurm job: the later one is called `NAME#2`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from hangdog_models.owner import Owner, same_owner
from hangdog_server.cluster.rank_claims import Claims
from hangdog_server.protocol.jobs import AnnouncedJob

#: What agents call a job that nobody named.
UNNAMED = "default"
#: What agents call one of which they know no more than the port where its ranks meet.
_BY_PORT = re.compile(r"port-\d{1,5}", re.ASCII)
#: How agents announce that the ranks of a job meet on their own machine: no other machine has a part in it.
HERE = "localhost"
_HERE = frozenset({HERE, "127.0.0.1", "::1", "0.0.0.0", "localhost.localdomain"})
#: Characters kept of a job's name where it is told apart from another one: a name of 253 stays one.
NAME = 180


@dataclass(slots=True, eq=False)
class JobEntry:
    """One job: what it is called, whose it is, and who runs which rank of it.

    `party` tells apart jobs of one owner that nobody named; empty for a job with a name. `meets` is where the ranks of one with
    a name meet, by the latest word: it moves when the job starts again.
    """

    label: str
    name: str
    owner: Owner
    party: str
    claims: Claims = field(default_factory=Claims)
    meets: str = ""

    def announce(self, machine: str, local: AnnouncedJob) -> None:
        """A machine says which of its ranks it runs now."""
        self.claims.announce(machine, local)
        self.meets = meets(machine, local) or self.meets

    def apart(self, machine: str, local: AnnouncedJob) -> bool:
        """Whether a machine tells of another set of ranks: they meet elsewhere, and are not of this set's size or claim its ranks."""
        here = meets(machine, local)
        if not here or self.party:
            return False
        world = self.claims.world()
        if self.meets not in ("", here) and None not in (world, local.world_size) and world != local.world_size:
            return True
        holders = {self.claims.holds(rank) for rank in local.ranks} - {"", machine}
        return any(meets(one, self.claims.announced[one]) not in ("", here) for one in holders)

    def fits(self, machine: str, local: AnnouncedJob) -> bool:
        """Whether what a machine announces may be of this job."""
        return (
            self.name == local.job
            and self.party == party(machine, local)
            and same_owner(self.owner, local.owner)
            and (self.owner == local.owner or not any(self.claims.holds(rank) for rank in local.ranks))
        )


class Roster:
    """The jobs that connected machines announce."""

    def __init__(self) -> None:
        self._entries: dict[str, JobEntry] = {}
        self._named: dict[str, list[JobEntry]] = {}
        self._of: dict[str, dict[str, JobEntry]] = {}

    def announce(self, machine: str, jobs: Iterable[AnnouncedJob]) -> dict[str, AnnouncedJob]:
        """Takes in all that runs on a machine now; by what each job is called."""
        before = self._of.pop(machine, {})
        now: dict[str, JobEntry] = {}
        placed: list[tuple[AnnouncedJob, JobEntry | None, bool]] = []
        for local in jobs:
            entry = next((one for one in before.values() if _same(one, machine, local)), None)
            # said again, it is no restart, of which each machine tells some seconds after the other
            again = entry is not None and entry.claims.announced[machine] == local
            if entry is not None and again and entry.apart(machine, local):
                entry = None
            if entry is not None:
                del before[entry.label]
            placed.append((local, entry, again))
        for entry in before.values():
            self._withdraw(entry, machine)
        for local, entry, again in placed:
            entry = entry or self._found(machine, local, now, again) or self._new(machine, local)
            if not entry.owner.known:
                entry.owner = local.owner  # an older agent could not tell; the first that can, does
            entry.announce(machine, local)
            now[entry.label] = entry
        if now:
            self._of[machine] = now
        return {label: entry.claims.announced[machine] for label, entry in now.items()}

    def withdraw(self, machine: str) -> None:
        """Nobody speaks for a machine any more."""
        for entry in self._of.pop(machine, {}).values():
            self._withdraw(entry, machine)

    def get(self, label: str) -> JobEntry | None:
        """The job of that label, if connected machines run it."""
        return self._entries.get(label)

    def on(self, machine: str) -> tuple[str, ...]:
        """What the jobs of a connected machine are called."""
        return tuple(self._of.get(machine, ()))

    def labels(self) -> tuple[str, ...]:
        """What all jobs are called, in order."""
        return tuple(sorted(self._entries))

    def label(self, machine: str, name: str, owner: Owner) -> str | None:
        """What the job is called that a machine announces under this name and owner; None when it does not."""
        mine = self._of.get(machine, {}).values()
        of_name = [entry for entry in mine if entry.name == name]
        return next((entry.label for entry in of_name if entry.claims.announced[machine].owner == owner), None)

    def called(self, machine: str, local: AnnouncedJob) -> str:
        """What a job is called that a machine tells of, whether or not it runs still."""
        known = next((entry for entry in self._named.get(local.job, ()) if entry.fits(machine, local)), None)
        return known.label if known is not None else self._free(machine, local)

    def _found(self, machine: str, local: AnnouncedJob, taken: dict[str, JobEntry], again: bool) -> JobEntry | None:
        """The job that a machine's announcement is of: that of the same owner, else, where either does not tell, the only one.

        Of several sets of ranks it is the one that meets there; `again`: else none that it contradicts.
        """
        named = self._named.get(local.job, ())
        fitting = [entry for entry in named if entry.fits(machine, local) and entry.label not in taken]
        here = meets(machine, local)
        fitting = [entry for entry in fitting if here and entry.meets == here] or [
            entry for entry in fitting if not (again and entry.apart(machine, local))
        ]
        same = next((entry for entry in fitting if entry.owner == local.owner), None)
        return same or (fitting[0] if fitting and len(named) == 1 else None)

    def _new(self, machine: str, local: AnnouncedJob) -> JobEntry:
        entry = JobEntry(self._free(machine, local), local.job, local.owner, party(machine, local))
        self._entries[entry.label] = entry
        self._named.setdefault(entry.name, []).append(entry)
        return entry

    def _free(self, machine: str, local: AnnouncedJob) -> str:
        beside = any(entry.owner == local.owner for entry in self._named.get(local.job, ()))
        labels = _labels_of_sets(local) if beside and not unnamed(local.job) else _labels(machine, local)
        return next(label for label in labels if label not in self._entries)

    def _withdraw(self, entry: JobEntry, machine: str) -> None:
        entry.claims.withdraw(machine)
        if not entry.claims.announced:
            del self._entries[entry.label]
            same = self._named[entry.name]
            same.remove(entry)
            if not same:
                del self._named[entry.name]


def unnamed(job: str) -> bool:
    """Whether nobody named a job: agents tell it by nothing then, or by the port where its ranks meet."""
    return job == UNNAMED or _BY_PORT.fullmatch(job) is not None


def party(machine: str, local: AnnouncedJob) -> str:
    """What keeps jobs apart that nobody named; empty for a job with a name.

    A job is this machine's alone where all of its ranks are here, where they meet here, and where nothing says that there
    are others. Else those are one that meet in one place and are of one size.
    """
    if not unnamed(local.job):
        return ""
    whole = local.world_size is not None and len(local.ranks) >= local.world_size
    unsaid = local.world_size is None and not local.rendezvous
    if whole or unsaid or local.rendezvous == HERE:
        return machine
    return f"{local.rendezvous}/{local.world_size or ''}"


def meets(machine: str, local: AnnouncedJob) -> str:
    """Where the ranks of a job with a name meet, so that all of its machines say it alike; empty where that is not told."""
    if unnamed(local.job) or not local.rendezvous:
        return ""
    host, colon, port = local.rendezvous.rpartition(":")
    return f"{machine}{colon}{port}" if host in _HERE else local.rendezvous


def identity(machine: str, local: AnnouncedJob) -> str:
    """What tells a recorded job from all others, for as long as it is kept."""
    return "@".join(filter(None, (local.job, str(local.owner) if local.owner.known else "", party(machine, local))))


def _same(entry: JobEntry, machine: str, local: AnnouncedJob) -> bool:
    """Whether a machine goes on with a job that it announced before."""
    before = entry.claims.announced[machine]
    return (before.job, before.owner) == (local.job, local.owner) and entry.party == party(machine, local)


def _labels_of_sets(local: AnnouncedJob) -> Iterator[str]:
    """What further sets of ranks of one name and owner are called."""
    yield from (f"{local.job[:NAME]}#{number}" for number in count(2))


def _labels(machine: str, local: AnnouncedJob) -> Iterator[str]:
    yield local.job
    apart = f"{local.job[:NAME]}@{local.owner}"
    if not unnamed(local.job):
        yield apart
    else:
        yield f"{local.job}@{machine}"
    yield f"{apart}@{machine}"
    yield from (f"{apart}@{machine}#{number}" for number in count(2))
