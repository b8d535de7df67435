"""A running job of a framework: started by whatever starts its ranks, followed by its steps, told what to do, and ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from frameworks.environment import HOME, PYTHON, TRAINERS, WORLD, Framework
from frameworks.served import SHARD
from hangdog.demo.conductor import free_port
from hangdog.demo.processes import DEATH_S, reap_leftovers
from hangdog_agent.procfs import Proc
from hangdog_models.errors import OurFault

#: Until the first steps: a framework is loaded four times over. Seconds.
START_S = 180.0
#: Until what is due has begun, and until the job goes on afterwards. Seconds.
PATIENCE_S = 90.0
#: All ranks know what is due before they come to it. Seconds.
NOTICE_S = 2.0
TICK_S = 0.1


class Job:
    """Leaving the context ends all its processes."""

    def __init__(self, framework: Framework, folder: Path, server: str, pace_s: float = 0.0) -> None:
        """`server` is the address of whatever it talks to; a step lasts `pace_s` seconds at least."""
        self.framework, self.folder, self._server, self._pace_s = framework, folder, server, pace_s
        self.pids: dict[int, int] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir()
        (self.folder / "cache").mkdir()
        for rank in range(WORLD):
            (self.folder / f"shard-{rank}").write_bytes(SHARD)
        for name in ("held-out", "checkpoint", "stalled"):
            os.mkfifo(self.folder / name)
        with (self.folder / "log").open("wb") as log:
            self._started = [
                subprocess.Popen(
                    command, env=self._environ() | environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True, cwd=TRAINERS,
                )
                for command, environ in self._commands()
            ]  # fmt: skip
        try:
            self._wait(lambda: min(self.steps(), default=0) >= 3, "first steps", START_S)
            self.pids = {rank: int((self.folder / f"pid-{rank}").read_text()) for rank in range(WORLD)}
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for started in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for started in self._started:
            started.wait()
        reap_leftovers(DEATH_S)

    def steps(self) -> list[int]:
        """The last step of each rank."""
        done = [self.folder / f"step-{rank}" for rank in range(WORLD)]
        return [int(path.read_bytes() or 0) if path.exists() else 0 for path in done]

    def order(self, act: str, name: str, ranks: Sequence[int]) -> None:
        """Has the trainers do something after a step that none of them has come to, and waits until it has begun."""
        begun = [self.folder / f"begun-{act}-{rank}" for rank in ranks]
        for path in begun:  # it may have been done before
            path.unlink(missing_ok=True)
        before, began = max(self.steps()), time.monotonic()
        time.sleep(max(NOTICE_S, 2 * self._pace_s))
        a_second = (max(self.steps()) - before) / (time.monotonic() - began)
        due = {"name": act, "ranks": list(ranks), "step": max(self.steps()) + 3 + int(a_second * NOTICE_S)}
        beside = self.folder / "due.part"
        beside.write_text(json.dumps(due))
        beside.replace(self.folder / "due.json")
        self._wait(lambda: all(path.exists() for path in begun), name, PATIENCE_S + 10 * self._pace_s)

    def alive(self, besides: Sequence[int] = ()) -> bool:
        """Whether all ranks are there besides some, those that are stopped included."""
        stats = [Proc().stat(pid) for rank, pid in self.pids.items() if rank not in besides]
        return all(stat is not None and stat.state not in "ZX" for stat in stats)

    def launchers(self) -> list[int]:
        """What started the ranks, where that is no rank itself."""
        return [one.pid for one in self._started if one.pid not in self.pids.values()]

    def workers(self, rank: int) -> list[int]:
        """The workers of a rank's data loader."""
        stats = ((int(path.name), Proc().stat(int(path.name))) for path in Path("/proc").glob("[0-9]*"))
        return [pid for pid, stat in stats if stat and stat.parent == self.pids[rank] and stat.comm == "pt_data_worker"]

    def last_words(self) -> str:
        log = (self.folder / "log").read_text(errors="replace")
        return log[log.find("Traceback") :][:3000]

    def release(self, ranks: Sequence[int]) -> None:
        """Ends what these ranks do for ever."""
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):  # then it does not go on, which is noticed
                os.kill(self.pids[rank], signal.SIGUSR2)

    def wait_on(self, name: str) -> None:
        """Waits until all ranks train again."""
        before = max(self.steps())
        self._wait(lambda: min(self.steps()) > before + 2, f"step after {name}", PATIENCE_S)

    def _commands(self) -> list[tuple[list[str], dict[str, str]]]:
        script = str(TRAINERS / self.framework.script)
        port = str(free_port())
        if self.framework.starter == "torchrun":
            torchrun = str(HOME / "bin" / "torchrun")
            return [([torchrun, "--nproc-per-node", str(WORLD), "--master-port", port, script], {})]
        if self.framework.starter == "itself":
            return [([str(PYTHON), script], {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})]
        assert self.framework.starter == "each"
        return [([str(PYTHON), script, port, str(rank)], {}) for rank in range(WORLD)]

    def _environ(self) -> dict[str, str]:
        own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return own | {
            "FRAMEWORKS_FOLDER": str(self.folder),
            "FRAMEWORKS_SERVER": self._server,
            "FRAMEWORKS_WORLD": str(WORLD),
            "FRAMEWORKS_PACE_S": str(self._pace_s),
            "TMPDIR": str(self.folder / "cache"),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONWARNINGS": "ignore",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCH_EXTENSIONS_DIR": str(self.folder / "cache"),
            **self.framework.environ,
        }

    def _wait(self, done: Callable[[], bool], what: str, patience_s: float) -> None:
        until = time.monotonic() + patience_s
        while not done():
            ended = all(started.poll() is not None for started in self._started)
            if ended or time.monotonic() > until:
                print(self.last_words(), file=sys.stderr)
                raise OurFault(f"{self.framework.name}: no {what}{', it has ended' if ended else ''}")
            time.sleep(TICK_S)
