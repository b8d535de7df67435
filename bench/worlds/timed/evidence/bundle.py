"""Writes the bundle of an incident: all files of a capture."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.host import Host
from worlds.timed.evidence import job_file, job_log, ras
from worlds.timed.evidence.frames import Installation
from worlds.timed.evidence.kernel_log import KernelLogs
from worlds.timed.evidence.plan import ENDED, Failure, Plan, plan
from worlds.timed.evidence.processes import error, process
from worlds.timed.evidence.recorder import Recorders
from worlds.timed.evidence.stacks import Stacks
from worlds.timed.evidence.workers import Workers
from worlds.timed.incident import Incident

#: Unix time at which a simulation begins, give or take.
_EPOCH = 1_763_900_000

_SCRIPTS = {
    "megatron": "pretrain_gpt.py",
    "fsdp": "-m torchtitan.train --job.config_file ./train_configs/llama3_8b.toml",
    "deepspeed": "train_zero3.py --deepspeed ds_config.json",
    "transformers": "run_clm.py --config cfg.json",
    "lightning": "train.py fit",
    "jax": "train.py --config=configs/base.py",
}


@dataclass(frozen=True, slots=True)
class Written:
    """What of an incident is in its bundle. `dumped`: recorded operations by group, rank and number; `shows`: machines whose
    kernel log tells of their fault.
    """

    plan: Plan
    dumped: Mapping[str, Mapping[Rank, Mapping[int, tuple[object, str]]]] = field(default_factory=dict)
    shows: frozenset[str] = frozenset()


def write(incident: Incident, folder: Path) -> Written:
    """Writes a bundle; says what is in it."""
    rng = Random(f"{incident.job.seed} evidence")
    of = plan(incident, rng)
    folder.mkdir(parents=True)
    installation = Installation(incident.job.seed, newer=incident.job.newer, marks_native=of.marks_native)
    pids = _pids(incident)
    _Capture(incident, of, installation, pids, rng).write(folder)
    epoch, time = _EPOCH + rng.randrange(9_000_000), incident.ended + rng.uniform(0.5, 3)
    if len(incident.looks) > 1 and rng.random() < 0.8:
        (folder / "rounds.toml").write_text(f"interval_s = {incident.gap_s:.1f}\n", encoding="utf-8")
    if of.job_file != "none":
        text = "\n".join(job_file.lines(incident, of, rng)) + "\n"
        (folder / "job.toml").write_text(text, encoding="utf-8")
    recorders = Recorders(incident, installation, pids, rng)
    if of.recorder:
        recorders.write(folder, time, epoch)
    if of.ras:
        ras.write(incident, folder, time, pids, rng)
    kernel = KernelLogs(incident, of, rng)
    if of.kernel:
        kernel.write(folder, time, epoch)
    if of.log:
        job_log.write(incident, installation, folder, time, epoch, rng)
    return Written(of, recorders.dumped, frozenset(kernel.shows))


def _pids(incident: Incident) -> Mapping[Rank, int]:
    rng = Random(f"{incident.job.seed} pids")
    first = {machine: rng.randrange(2000, 900000) for machine in incident.layout.machines}
    apart = rng.choice((1, 1, 2, 67))
    each = incident.layout.per_machine
    return {rank: first[incident.layout.machine(rank)] + rank % each * apart for rank in incident.layout.ranks}


class _Capture:
    """The looks at all processes."""

    def __init__(
        self, incident: Incident, of: Plan, installation: Installation, pids: Mapping[Rank, int], rng: Random
    ) -> None:
        self._incident, self._plan, self._pids = incident, of, pids
        name = incident.job.name
        python = rng.choice(("/usr/bin/python3", "/opt/conda/bin/python", "python"))
        self._command = "ray::WorkerDict" if name == "ray" else f"{python} -u {_SCRIPTS.get(name, 'bin/launch.py')}"
        self._stacks = Stacks(incident, of, installation, self._command, rng)
        self._workers = Workers(incident, of, self._stacks, self._command, rng)

    def write(self, folder: Path) -> None:
        for look in range(len(self._incident.looks)):
            for rank in self._incident.layout.ranks:
                if (look, rank) not in self._plan.absent:
                    self._rank(folder, rank, look)

    def _rank(self, folder: Path, rank: Rank, look: int) -> None:
        failure, pid = self._plan.failures.get(rank), self._pids[rank]
        if failure is Failure.LOST:
            return

        def path(ending: str) -> Path:
            return self._place(folder, rank, look) / f"rank{self._plan.separator}{rank}{ending}"

        if failure is not None:
            words = error(failure, pid, self._incident.layout.machine(rank))
            path(".error.txt").write_text(words, encoding="utf-8")
        else:
            threads = self._stacks.of(rank, look, pid)
            if threads is not None:
                path(".json").write_text(json.dumps(threads), encoding="utf-8")
        if self._plan.processes and _has_files(self._incident.host(rank), failure):
            row = process(self._incident, rank, look, pid, self._command)
            if row is not None:
                path(".proc.json").write_text(json.dumps(row), encoding="utf-8")
        if self._plan.workers and failure not in (*ENDED, Failure.UNREACHABLE):
            self._workers.write(rank, look, pid, path)

    def _place(self, folder: Path, rank: Rank, look: int) -> Path:
        place = folder / f"round-{look}" if len(self._incident.looks) > 1 else folder
        if self._plan.folders == "machines":
            place /= f"machine-{self._incident.layout.machine(rank)}"
        elif self._plan.folders == "stacks":
            place /= "stacks"
        place.mkdir(parents=True, exist_ok=True)
        return place


def _has_files(host: Host, failure: Failure | None) -> bool:
    """Whether /proc still says something of a process, and somebody can read it."""
    if failure is Failure.UNREACHABLE:
        return False
    return host.dead is None or failure is Failure.ZOMBIE
