"""Remembers which trainers run here, so that one that ended is known to have been there."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hangdog_agent.census import Census
from hangdog_agent.discover import Kind, Member, find
from hangdog_models.ranks import Rank


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A job on this machine: its living ranks, ascending; `world_size` 0 and `topology` empty when not announced."""

    name: str
    ranks: tuple[Rank, ...]
    world_size: int
    topology: str


class Watch:
    """Looks for training processes, and keeps those that ended while their job went on (or for `forget_s` seconds)."""

    def __init__(self, census: Census, match: tuple[str, str] | None, without: Sequence[int], forget_s: float) -> None:
        self._census = census
        self._match = match
        self._without = tuple(without)
        self._forget_s = forget_s
        self._trainers: dict[tuple[str, Rank], tuple[Member, float]] = {}
        self._lock = threading.Lock()

    def see(self) -> tuple[Member, ...]:
        """All members of all jobs on this machine now."""
        members = find(self._census.take(), self._match, self._without)
        self._keep([member for member in members if member.kind is Kind.TRAINER], time.monotonic())
        return members

    def known(self) -> tuple[Member, ...]:
        """The trainers seen last for each rank, those that ended since included."""
        with self._lock:
            return tuple(member for member, _ in self._trainers.values())

    def ranks(self) -> dict[int, Rank]:
        """The ranks of those trainers that still run, by their pid, which may be another process's by now."""
        found = {}
        for member in self.known():
            now = self._census.proc.stat(member.process.pid)
            if now is not None and now.started == member.process.started:
                found[member.process.pid] = member.rank
        return found

    def _keep(self, trainers: Sequence[Member], now: float) -> None:
        with self._lock:
            alive = {(member.job, member.process.key) for member in trainers}
            went_on = {member.job for member, _ in self._trainers.values() if (member.job, member.process.key) in alive}
            living = {member.job for member in trainers}
            # a job none of whose trainers went on has been started anew: the ranks of its last life are no longer missed
            self._trainers = {
                key: (member, seen)
                for key, (member, seen) in self._trainers.items()
                if member.job in went_on or (member.job not in living and now - seen < self._forget_s)
            }
            self._trainers |= {(member.job, member.rank): (member, now) for member in trainers}


def jobs(members: Sequence[Member]) -> tuple[LocalJob, ...]:
    """The jobs these members belong to, by name."""
    trainers = [member for member in members if member.kind is Kind.TRAINER]
    return tuple(
        LocalJob(
            name=job,
            ranks=tuple(sorted(member.rank for member in trainers if member.job == job)),
            world_size=max(member.world_size for member in trainers if member.job == job),
            topology=next((member.topology for member in trainers if member.job == job and member.topology), ""),
        )
        for job in sorted({member.job for member in trainers})
    )
