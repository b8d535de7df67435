"""A running job of the plain trainer: each rank stands for a machine with one GPU, over NCCL, or gloo in a dry run."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from gpu.cluster import MACHINE, place
from gpu.kit import Stand
from gpu.processes import Children
from gpu.trainers.one_gpu import nccl_environ
from hangdog.demo.conductor import free_port
from hangdog_models.errors import OurFault

TRAINER = Path(__file__).with_name("trainers") / "nccl_trainer.py"
#: Until the first steps: torch and CUDA are loaded in every rank. Seconds.
START_S = 90.0
#: Until an order is taken up, and until training goes on after a fault is over. Seconds.
PATIENCE_S = 45.0
TICK_S = 0.1
#: What NCCL tells of its start goes to the ranks' logs.
TOLD = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,RAS"}
#: Recorders answer when they are asked, and keep what most jobs that have them on keep.
RECORDER = {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}


class Job:
    """Started by `start`; ends with the children."""

    def __init__(
        self, stand: Stand, children: Children, folder: Path, world: int, more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.name, self.world, self.folder = f"gpu-{world}", world, folder
        self._stand, self._children, self._more = stand, children, more
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}
        self._orders = 0

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(f"node-{rank}" for rank in range(self.world))

    def start(self) -> None:
        """Returns after the first steps; raises OurFault with the ranks' last words when there are none."""
        port, ras = free_port(), free_port()
        (self.folder / "tmp").mkdir()
        for rank in range(self.world):
            environ = {
                "RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": str(self.world),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HANGDOG_JOB": self.name,
                "HANGDOG_TOPOLOGY": f"dp={self.world}", MACHINE: place(self.folder, f"node-{rank}"),
                "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1",
                "NCCL_RAS_ADDR": f"localhost:{ras}", **nccl_environ(rank), **TOLD, **RECORDER,
                "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(self.folder / "fr_"),
                "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(self.folder / "pipe_"),
                "TORCH_FR_DUMP_TEMP_FILE": str(self.folder / "fr_"),
                "TMPDIR": str(self.folder / "tmp"),
                "TORCHINDUCTOR_CACHE_DIR": str(self.folder / f"inductor-{rank}"),
                **({"CUDA_VISIBLE_DEVICES": ""} if self._stand.dry else {}), **self._more,
            }  # fmt: skip
            command: list[str | Path] = [
                self._stand.python,
                "-u",
                TRAINER,
                self.folder,
                *(["dry"] if self._stand.dry else []),
            ]
            self.ranks[rank] = self._children.start(f"rank-{rank}", command, environ)
        self.wait(lambda: min(self.steps()) >= 3, "first steps", START_S)

    def steps(self) -> list[int]:
        """The last step of each rank."""
        files = [self.folder / f"step-{rank}" for rank in range(self.world)]
        return [int(file.read_text()) if file.exists() else 0 for file in files]

    def last_step_at(self) -> float:
        """When any rank finished a step for the last time. Unix seconds."""
        return max((self.folder / f"step-{rank}").stat().st_mtime for rank in range(self.world))

    def order(self, act: str, ranks: Sequence[int], late: int = 4) -> None:
        """Has ranks do something after a step that none of them has come to, and waits until all have begun it."""
        self._orders += 1
        step = max(self.steps()) + late
        step += -step % 5 if act in ("skip", "resize") else 0
        part = self.folder / "due.part"
        part.write_text(json.dumps({"number": self._orders, "act": act, "ranks": list(ranks), "step": step}))
        part.replace(self.folder / "due.json")
        begun = [self.folder / f"begun-{rank}" for rank in ranks]

        def has_begun() -> bool:
            return all(file.exists() and file.read_text() == str(self._orders) for file in begun)

        self.wait(has_begun, act, PATIENCE_S, alive=False)

    def train(self, seconds: float) -> None:
        """Lets it train for so long; raises OurFault when a rank ends meanwhile."""
        until = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() > until, "training", seconds + 5.0)

    def goes_on(self, patience_s: float = PATIENCE_S) -> None:
        """Waits until all ranks have finished more steps."""
        before = max(self.steps())
        self.wait(lambda: min(self.steps()) > before + 3, "step afterwards", patience_s)

    def signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.ranks[rank].pid, number)

    def last_words(self) -> str:
        """The end of what each rank that has ended said; of all where none has."""
        ended = [rank for rank, process in self.ranks.items() if process.poll() is not None]
        logs = {rank: self._children.log(f"rank-{rank}").read_text(errors="replace") for rank in ended or self.ranks}
        return " // ".join(f"rank {rank}: {log.strip()[-400:]}" for rank, log in logs.items())

    def wait(self, done: Callable[[], bool], what: str, patience_s: float, alive: bool = True) -> None:
        until = time.monotonic() + patience_s
        while not done():
            ended = alive and any(process.poll() is not None for process in self.ranks.values())
            if ended or time.monotonic() > until:
                why = "a rank has ended" if ended else f"none within {patience_s:.0f} s"
                raise OurFault(f"no {what}: {why}; {self.last_words()}")
            time.sleep(TICK_S)
