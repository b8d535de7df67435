"""A live job: started, followed, broken, looked at with the agent's own capture, and ended."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from hangdog.demo.conductor import free_port
from hangdog.demo.job.settings import write_settings
from hangdog.demo.progress import Progress
from hangdog_agent.capture import pyspy
from hangdog_agent.capture.look import Tools
from hangdog_agent.capture.series import Series
from hangdog_agent.census import Census
from hangdog_agent.discover import Member, find
from hangdog_agent.procfs import Proc
from hangdog_agent.settings import CaptureSettings
from live.plan import Plan
from live.recording import pause, write_flight_recorder, write_job, write_round

#: Until the first steps, and until the job stands still; much longer than either takes on a busy machine. Seconds.
PATIENCE_S = 150.0
#: No rank finished a step for so long, or for five of its slowest: it stands still. Seconds.
QUIET_S = 2.5
#: How long one wait for news lasts. Seconds.
TICK_S = 0.1
#: Where this test's packages lie, for the processes it starts.
TESTS = Path(__file__).parents[1]


class Launcher:
    """The process all ranks are forked from; leaving the context ends it and them."""

    def __enter__(self) -> Self:
        # not pytest's tmp_path: sockets lie below, and their path may have 107 characters only
        self.files = tempfile.TemporaryDirectory(prefix="hl-")
        environ = os.environ | {
            "PYTHONPATH": str(TESTS),
            "TMPDIR": self.files.name,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",  # gloo would else ask the resolver for this host's name
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # in the rank itself: each worker would load PyTorch again
            "TORCHINDUCTOR_CACHE_DIR": f"{self.files.name}/inductor",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "CUDA_VISIBLE_DEVICES": "",
        }
        self._process = subprocess.Popen(
            (sys.executable, "-m", "live.launcher", str(os.getpid())),
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._answer() == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # the end of its stdin is the end of its ranks and of itself
        self.files.cleanup()

    def order(self, *order: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


class Job:
    """A running job of the launcher, which has one at a time; leaving the context ends it.

    `settings` are those of every rank, but one that has a rank in `doers` is that rank's alone.
    """

    def __init__(
        self,
        plan: Plan,
        launcher: Launcher,
        settings: Mapping[str, int] | None = None,
        doers: Mapping[str, int | None] | None = None,
    ) -> None:
        self.plan = plan
        self._launcher = launcher
        self._settings = settings or {}
        self._doers = {} if doers is None else doers
        self._census = Census(Proc())
        tool = pyspy.load()
        self._series = Series("live", self._see, Tools(Proc(), tool, CaptureSettings(look_s=PATIENCE_S)))

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(dir=self._launcher.files.name))
        self._steps = {rank: self._prepare(rank) for rank in range(self.plan.world)}
        port = free_port()
        launches = [self._launch(rank, port) for rank in range(self.plan.world)]
        pids = self._launcher.order(self.plan.trainer, str(self.folder), self.plan.seed, launches)
        self.pids: dict[int, int] = dict(enumerate(pids))
        self._announced = dict(zip(pids, launches, strict=True))
        self._progress = Progress(self._steps, self._last_words, QUIET_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._launcher.order()
        for steps in self._steps.values():
            steps.close()

    def rank_folder(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}"

    def train_until(self, step: int) -> None:
        """Waits until all ranks have finished a step; raises OurFault when one ends by itself."""
        done = 0

        def trained() -> bool:
            nonlocal done
            done = max([done, *(each.number for each in self._progress.follow(TICK_S))])
            return done >= step

        self._wait(trained, f"step {step}")

    def until_still(self, rank: int) -> None:
        """Waits until the job stands still, and the memory of the rank that was struck too: a fault may build up."""
        statm = Path(f"/proc/{self.pids[rank]}/statm")
        memory, since = "", time.monotonic()

        def still() -> bool:
            nonlocal memory, since
            stepped, now = list(self._progress.follow(TICK_S)), statm.read_text()
            if stepped or now != memory:
                memory, since = now, time.monotonic()
            return self._progress.stands_still() and time.monotonic() - since > QUIET_S

        self._wait(still, "a standstill")

    def until_begun(self, duty: str) -> None:
        """Waits until a duty has begun on all ranks that do it, or they have come to wait for it."""
        begun = self.folder / f"{duty}.begun"
        self._wait(lambda: not list(self._progress.follow(TICK_S)) and begun.exists(), duty)

    def enough(self, duty: str) -> None:
        (self.folder / f"{duty}.enough").touch()

    def record(self, bundle: Path, name: str, rounds: int) -> None:
        """Looks at all processes `rounds` times, asks for the flight recorders, and writes all of it as a bundle."""
        write_job(bundle, self.plan, name)
        for number in range(rounds):
            began = time.monotonic()
            write_round(bundle, number, self.plan, self._series.look())
            if number < rounds - 1:
                pause(began)
        for rank in range(self.plan.world):
            write_flight_recorder(bundle, rank, self.rank_folder(rank) / "worker")
        list(
            self._progress.follow(0.0)
        )  # a rank that ended by itself is the trainer's fault, not what was to be recorded

    def _see(self) -> Sequence[Member]:
        """All members of the job. A forked rank's environment is in its memory only, so what it announced is filled in."""
        table = (replace(row, environ=self._announced.get(row.pid)) for row in self._census.take())
        return find(table)

    def _prepare(self, rank: int) -> IO[bytes]:
        folder = self.rank_folder(rank)
        folder.mkdir()
        own = {name: value for name, value in self._settings.items() if self._doers.get(name) in (None, rank)}
        if own:
            write_settings(folder / "settings.json", own)
        os.mkfifo(folder / "steps")
        return os.fdopen(os.open(folder / "steps", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)

    def _launch(self, rank: int, port: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % self.plan.per_machine),
            "WORLD_SIZE": str(self.plan.world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "HANGDOG_JOB": "live",
            "HANGDOG_TOPOLOGY": self.plan.topology,
        }

    def _last_words(self, rank: int) -> str:
        lines = (self.rank_folder(rank) / "errors").read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < until, f"no {what} within {PATIENCE_S:g} s"
