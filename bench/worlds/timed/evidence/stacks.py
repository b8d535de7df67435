"""The threads of a trainer as `py-spy dump --json` writes them."""

from random import Random
from typing import Any
from zlib import crc32

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position
from worlds.timed.evidence.frames import Frame, Installation
from worlds.timed.evidence.plan import Plan
from worlds.timed.incident import Incident

#: How long a host stays in one of the places that it is in by turns.
_TURN_S = 0.37
#: Native frames of a host that spins.
SPINNING = ("sync", "device_sync", "work_wait", "launch")
#: Helper threads of processes: name, and where they wait.
_WRITER = ("Thread-9", "th.b th.bi tb.run q.gett th.waitt")
_PROGRESS = ("Thread-2", "th.b th.bi TMonitor.run@site/tqdm/_monitor.py@60 th.ewait th.waitt")
_BEAT = ("health-beat", "{thread} _beat@code/acme/health/beat.py@27 th.ewait th.waitt")
_COMPILER = ("Thread-3 (_read_thread)", "{thread} cmp.pool cmp.recv")
_PINS = "{thread} pm.loop pm.step mpq.get mpc.poll mpc._poll mpc.wait sel.select"
_FEEDS = "{thread} mpq.feed th.wait"
_ASYNC = ("AsyncIO Thread: default", "{thread} asy.runf asy.once asy.sel")


def turn(position: Position, rank: Rank, time: float) -> str:
    """The frames below a position that a host is in at a time."""
    if not position.inner:
        return ""
    return position.inner[crc32(f"{rank}/{int(time / _TURN_S)}".encode()) % len(position.inner)]


def sleeps(position: Position, inner: str) -> bool:
    """Whether a host sleeps where it is seen."""
    return position.state != "R" or (inner.split() or [""])[-1].startswith("th.")


class Stacks:
    """Writes the threads of the trainers of an incident."""

    def __init__(self, incident: Incident, plan: Plan, installation: Installation, command: str, rng: Random) -> None:
        self._incident, self._plan, self._installed = incident, plan, installation
        self._command, self._rng = command, rng
        name = incident.job.name
        compiles = incident.kind.name in ("recompilation", "one-compiles", "autotuning")
        self._compiler = name in ("fsdp", "transformers", "lightning") and (compiles or rng.random() < 0.25)
        self._writer, self._beat = rng.random() < 0.5, rng.random() < 0.3
        self._progress = name in ("transformers", "lightning") or rng.random() < 0.2
        self._pin_thread = f"Thread-{rng.choice((1, 3, 4))} (_pin_memory_loop)"

    def of(self, rank: Rank, look: int, pid: int) -> list[dict[str, Any]] | None:
        """The threads of a rank at a look; None before it was started."""
        time = self._incident.looks[look][rank]
        at = self._incident.seen(rank, look)
        if at is None:
            return None
        inner = turn(at, rank, time)
        runs = not sleeps(at, inner)
        gil = (at.gil and runs) or (at.native == "python" and runs and self._rng.random() < 0.5)
        frames = self._stack(f"{at.frames} {inner}", at.native, rank)
        threads = [self._thread("MainThread", 0, frames, pid, active=runs or at.native in SPINNING, gil=gil)]
        if at.autograd and (at.waits or self._rng.random() < 0.5):
            backward = self._stack(at.autograd, "launch" if at.waits else "python", rank)
            threads.append(self._thread("pt_autograd_0", 301, backward, pid, active=True))
        threads += self._helpers(rank, time, pid)
        return threads[:1] + threads[:0:-1] if self._rng.random() < 0.5 else threads

    def worker(self, frames: str, native: str, pid: int) -> list[dict[str, Any]]:
        """The one thread of a worker of a data loader."""
        return [self._thread("MainThread", 0, self._stack(frames, native, pid), pid)]

    def _helpers(self, rank: Rank, time: float, pid: int) -> list[dict[str, Any]]:
        job, early = self._incident.job, self._incident.scene.starts_up
        named: list[tuple[str, str]] = []
        if job.has_loader(rank) and not early and job.name != "jax":
            named += [(self._pin_thread, _PINS)] if job.pinned else []
            named += [("QueueFeederThread", _FEEDS)] * 2
        named += [_WRITER] if self._writer and not early and rank in (0, job.layout.world_size - 1) else []
        named += [_PROGRESS] if self._progress and not early and rank == 0 else []
        named += [_BEAT] if self._beat else []
        named += [_COMPILER] if self._compiler else []
        named += [_ASYNC] if job.name == "ray" else []
        found = [
            self._thread(name, 31 + at, self._installed.stack(job.places.fill(frames)), pid)
            for at, (name, frames) in enumerate(named)
        ]
        for one in self._incident.scene.threads:
            if one.rank == rank and one.begins <= time < one.ends:
                writes = one.native == "file_write"
                found.append(self._thread(one.name, 77, self._stack(one.frames, one.native, rank), pid, active=writes))
        return found

    def _stack(self, frames: str, native: str, salt: int) -> list[Frame]:
        below = self._installed.native(native, salt) if self._plan.native else []
        return below + self._installed.stack(frames)

    def _thread(
        self, name: str, at: int, frames: list[Frame], pid: int, *, active: bool = False, gil: bool = False
    ) -> dict[str, Any]:
        base = 0x7F0000000740 + (crc32(str(pid).encode()) % 65536) * 0x1000000
        info = {"pid": pid, "command_line": self._command, "parent": None} if self._plan.subprocesses else None
        return {
            "pid": pid,
            "thread_id": base - at * 0x801000,
            "thread_name": name,
            "os_thread_id": pid + at,
            "active": active,
            "owns_gil": gil,
            "frames": frames,
            "process_info": info,
        }
