"""A live job: started, followed, broken, looked at with the agent's own capture, and ended."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from hangdog.demo.conductor import free_port
from hangdog.demo.job.settings import write_settings
from hangdog.demo.memory_growth import MemoryGrowth
from hangdog.demo.processes import final_line
from hangdog.demo.step_reports import StepReports
from hangdog_agent.capture import pyspy
from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import RankProcesses, find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.procfs import Proc
from hangdog_models.stack import Reason
from live.network import Network
from live.plan import Plan
from live.recording import pause, write_flight_recorder, write_job, write_round

#: Until the first steps, and until the job stands still; much longer than either takes on a busy machine. Seconds.
PATIENCE_S = 150.0
#: No rank finished a step for so long, or for five of its slowest: it stands still. Seconds.
QUIET_S = 2.5
#: How long one wait for news lasts. Seconds.
TICK_S = 0.1
#: Where a rank announces its machine.
MACHINE = "HANGDOG_LIVE_MACHINE"
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


class AnnouncingProc(Proc):
    """A process table that knows what forked ranks announced: the kernel shows only what a program was started with."""

    def __init__(self, announced: Mapping[int, Mapping[str, str]]) -> None:
        super().__init__()
        self._announced = announced

    def raw(self, pid: int, name: str) -> bytes | Reason:
        if name == "environ" and pid in self._announced:
            return b"".join(f"{key}={value}\0".encode() for key, value in self._announced[pid].items())
        return super().raw(pid, name)

    def tids(self, pid: int) -> tuple[int, ...]:
        """None for who announced: a rank on a disk just then would else be read by a child, which knows nothing of that."""
        return () if pid in self._announced else super().tids(pid)


class Job:
    """A running job of the launcher, which has one at a time; leaving the context ends it.

    `settings` are those of every rank, but one that has a rank in `doers` is that rank's alone. With `network` one half
    of the machines lies on either side of it. `files` are files of a rank's folder that it announces, by variable,
    and so is the job's `name`.
    """

    def __init__(
        self,
        plan: Plan,
        launcher: Launcher,
        settings: Mapping[str, int] | None = None,
        doers: Mapping[str, int | None] | None = None,
        network: Network | None = None,
        files: Mapping[str, str] | None = None,
        name: str = "live",
    ) -> None:
        self.plan = plan
        self.name = name
        #: The last step that all ranks have finished.
        self.step = 0
        self._network = network
        self._files = files or {}
        self._launcher = launcher
        self._settings = settings or {}
        self._doers = {} if doers is None else doers
        #: What its ranks announce, by process.
        self.announced: dict[int, dict[str, str]] = {}
        self._census = ProcessTable(AnnouncingProc(self.announced))
        tool = pyspy.load()
        self._series = CaptureSeries("live", self._see, Tools(Proc(), tool, CaptureSettings(look_s=PATIENCE_S)))

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(dir=self._launcher.files.name))
        self._steps = {rank: self._prepare(rank) for rank in range(self.plan.world)}
        port = free_port()
        launches = [self._launch(rank, port) for rank in range(self.plan.world)]
        pids = self._launcher.order(self.plan.trainer, str(self.folder), self.plan.seed, launches)
        self.pids: dict[int, int] = dict(enumerate(pids))
        self.announced.update(zip(pids, launches, strict=True))
        self._progress = StepReports(self._steps, self._last_words, QUIET_S)
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

        def trained() -> bool:
            self._follow(TICK_S)
            return self.step >= step

        self._wait(trained, f"step {step}")

    def train_for(self, seconds: float) -> None:
        """Trains so long, from the first step on that all ranks have finished."""
        self.train_until(1)
        self.go_on_for(seconds)

    def go_on_for(self, seconds: float) -> None:
        """Lets it do what it does for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._follow(TICK_S)

    def silent_s(self) -> float:
        """Seconds since any rank finished a step."""
        self._follow(0.0)
        return self._progress.since_step_s()

    def until_still(self, rank: int) -> None:
        """Waits until the job stands still, and the memory of the rank that was struck too: a fault may build up."""
        growth = MemoryGrowth(self.pids[rank])

        def still() -> bool:
            self._follow(TICK_S)
            resting_s = growth.stable_s()
            return self._progress.stalled() and resting_s > QUIET_S

        self._wait(still, "a standstill")

    def until_begun(self, duty: str) -> None:
        """Waits until a duty has begun on all ranks that do it, or they have come to wait for it."""
        begun = self.folder / f"{duty}.begun"
        self._wait(lambda: not self._follow(TICK_S) and begun.exists(), duty)

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
        self._follow(0.0)  # a rank that ended by itself is the trainer's fault, not what was to be recorded

    def _follow(self, seconds: float) -> bool:
        """Takes note of the steps finished until then; whether there were any. Raises OurFault when a rank ended by itself."""
        steps = [each.number for each in self._progress.follow(seconds)]
        self.step = max([self.step, *steps])
        return bool(steps)

    def _see(self) -> Sequence[RankProcesses]:
        return find(self._census.take())

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
            "HANGDOG_JOB": self.name,
            "HANGDOG_TOPOLOGY": self.plan.topology,
            MACHINE: self.plan.machine(rank),
            **{variable: str(self.rank_folder(rank) / name) for variable, name in self._files.items()},
            **(self._network.launch(2 * rank >= self.plan.world) if self._network else {}),
        }

    def _last_words(self, rank: int) -> str:
        return final_line(self.rank_folder(rank) / "errors")

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < until, f"no {what} within {PATIENCE_S:g} s"
