"""A job of small_transformer.py as it is seen from here: it makes steps when it is told to, and says how long each took."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu.kit import Stand
from gpu.trainers import page
from gpu.trainers.one_gpu import nccl_environ
from gpu.trainers.steps import KEPT, At
from hangdog.demo.conductor import free_port
from hangdog.demo.pipes import first_line
from overhead.stage import NotStarted, Stage, rank_environ

BENCH = Path(__file__).resolve().parents[2]
_SCRIPT = BENCH / "gpu" / "trainers" / "small_transformer.py"
#: Until torch and the device are ready, and for a block of steps. Seconds.
START_S, STEPS_S = 60.0, 20.0
#: More steps than anything here lasts: it goes on by itself.
_ENDLESS = 1e15
_LOOK_S = 0.005


class SteppingJob:
    """One job with its page; `ready` is to be called before the first step, when all jobs were started."""

    def __init__(
        self, here: Stage, stand: Stand, name: str, world: int = 1, environ: Mapping[str, str] | None = None
    ) -> None:
        self._here, self._name = here, name
        self._file = here.folder / f"page-{name}"
        self._page = page.make(self._file, At.STEPS + KEPT)
        options = [*(["--dry"] if stand.dry else []), *(["--small"] if world > 1 else [])]
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "LOCAL_RANK": "0"}
        self._ranks: list[subprocess.Popen[bytes]] = []
        for rank in range(world):
            own = rank_environ(rank, world) | nccl_environ(rank) | meeting | dict(environ or {})
            own |= {"HANGDOG_JOB": f"overhead-{name}", "PYTHONPATH": os.fspath(BENCH), "OMP_NUM_THREADS": "1"}
            self._ranks.append(here.start(self._rank(rank), str(_SCRIPT), str(self._file), *options, **own))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._ranks]

    def ready(self) -> None:
        for rank, process in enumerate(self._ranks):
            if first_line(process, START_S) != "ready":
                raise NotStarted(f"{self._rank(rank)} did not start: {self.said()}")

    def steps(self, count: int) -> list[float]:
        """Seconds of so many steps, made now."""
        began = int(self._page[At.DONE])
        self._page[At.TARGET] = float(began + count)
        until = time.monotonic() + STEPS_S
        while self._page[At.DONE] < began + count:
            self._check(until)
            time.sleep(_LOOK_S)
        return self._between(began, began + count)

    def go_on(self) -> None:
        """From now on it makes one step after another."""
        self._page[At.TARGET] = _ENDLESS

    def during(self, seconds: float) -> list[float]:
        """Seconds of the steps of a time, of a job that goes on; the first one, which began before, is left out."""
        began, until = int(self._page[At.DONE]), time.monotonic() + STEPS_S
        time.sleep(seconds)
        while self._page[At.DONE] < began + 2:
            self._check(until)
            time.sleep(_LOOK_S)
        return self._between(began + 1, int(self._page[At.DONE]))

    def said(self) -> str:
        return " | ".join(self._here.said(self._rank(rank)) for rank in range(len(self._ranks))) or "it said nothing"

    def _rank(self, rank: int) -> str:
        return f"{self._name}-{rank}"

    def _between(self, first: int, end: int) -> list[float]:
        return [self._page[At.STEPS + number % KEPT] for number in range(max(first, end - KEPT), end)]

    def _check(self, until: float) -> None:
        ended = [process.returncode for process in self._ranks if process.poll() is not None]
        if ended:
            raise NotStarted(f"{self._name} ended with status {ended[0]}: {self.said()}")
        if time.monotonic() > until:
            raise NotStarted(f"{self._name} makes no steps: {self.said()}")


def block_of(steps: Sequence[float], seconds: float) -> int:
    """How many steps a block of so many seconds has, at least three."""
    middle = sorted(steps)[len(steps) // 2]
    return max(3, round(seconds / middle))
