"""The worker processes of data loaders."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.evidence.plan import Failure, Plan
from worlds.timed.evidence.processes import error, worker
from worlds.timed.evidence.stacks import Stacks
from worlds.timed.incident import Incident
from worlds.timed.scenarios.hosts import TwoFaults
from worlds.timed.scenarios.scenario import STORAGE_CALLS
from worlds.timed.scenarios.stuck import Stuck

#: So many workers are captured of each trainer, and of large jobs only every so many trainers'.
_WORKERS, _EVERY = 2, 16
#: Kinds in which workers never get on.
_LOADING = ("stuck-loader", "storage-of-one", "storage-of-all")
#: Workers read when they are looked at, with this probability.
_READING = 0.08


class Workers:
    """Writes the workers' stacks and states. One that its trainer waits for is blocked in storage, or waits for what never comes."""

    def __init__(self, incident: Incident, plan: Plan, stacks: Stacks, command: str, rng: Random) -> None:
        self._incident, self._plan, self._stacks, self._command = incident, plan, stacks, command
        self._rng = rng
        parts = incident.scene.parts if isinstance(incident.scene, TwoFaults) else [incident.scene]
        loading = [part for part in parts if isinstance(part, Stuck) and part.kind in _LOADING]
        self._hit = {rank for part in loading for rank in part.affected}
        stored = any(part.kind.startswith("storage") for part in loading)
        self._blocked = rng.choice(STORAGE_CALLS) if stored or rng.random() < 0.5 else ""
        #: Of a loader that is stuck by itself, one worker may get on.
        self._one = not stored and rng.random() < 0.5

    def write(self, rank: Rank, look: int, pid: int, path: Callable[[str], Path]) -> None:
        """Writes the workers of a trainer."""
        job, time = self._incident.job, self._incident.looks[look][rank]
        large = job.layout.world_size > 64 and rank % _EVERY and rank not in self._incident.scene.ranks
        if not job.has_loader(rank) or self._incident.scene.starts_up or large:
            return
        at = self._incident.seen(rank, look)
        caught = rank in self._hit and at is not None and at.frames == job.places["data"]
        for number in range(_WORKERS):
            stuck = caught and not (number and self._one)
            its_pid = pid + 900 + number
            blocked = self._blocked if stuck else ""
            if blocked and self._rng.random() < 0.4:
                words = error(Failure.NOT_STOPPED, its_pid, "")
                path(f".dataloader-{number}.error.txt").write_text(words, encoding="utf-8")
            else:
                reads = stuck or (not self._hit and self._rng.random() < _READING)
                frames = job.places.fill("{worker} {worker_reads}") if reads else job.places["worker_idle"]
                found = self._stacks.worker(frames, "file_read" if reads else "lock", its_pid)
                path(f".dataloader-{number}.json").write_text(json.dumps(found), encoding="utf-8")
            if self._plan.processes:
                used = 90 + its_pid % 31 + self._incident.host(rank).cpu_s(min(time, self._incident.settled)) * 0.2
                row = worker(its_pid, stuck=stuck, blocked=blocked, command=self._command, used=used)
                path(f".dataloader-{number}.proc.json").write_text(json.dumps(row), encoding="utf-8")
