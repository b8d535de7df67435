"""The trainer of cuda_calls.py as it is seen from here: sent into a call, out of it, and started again where it is lost."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from gpu.kit import Stand
from gpu.trainers import page
from gpu.trainers.one_gpu import nccl_environ
from gpu.trainers.turns import At, number
from hangdog.demo.conductor import free_port
from hangdog.demo.pipes import first_line
from hangdog_agent.procfs import Proc
from overhead.stage import NotStarted, Stage, rank_environ

BENCH = Path(__file__).resolve().parents[2]
_SCRIPT = BENCH / "gpu" / "trainers" / "cuda_calls.py"
#: Until torch and the device are ready; both ranks load at once. Seconds.
START_S = 60.0
#: From the order until the trainer stands in the call: a process group is made meanwhile at most. Seconds.
ENTER_S = 25.0
#: Until it has left it: the kernel ends as soon as the host says so. Seconds.
LEAVE_S = 10.0
#: It stands for so long before it is looked at: what it launched has reached the device by then. Seconds.
SETTLE_S = 0.2
_LOOK_S = 0.005


class CallFailed(Exception):
    """The trainer did not come to stand in a call, or did not leave it; the words are its own."""


class StandingTrainer:
    """The trainer, its peer and the page between them and us; `lost` counts how often it had to be started again."""

    def __init__(self, here: Stage, stand: Stand) -> None:
        self._here, self._stand, self._port = here, stand, str(free_port())
        self._file = here.folder / "page"
        self.page = page.make(self._file, len(At))
        self.lost = 0
        trainer, peer = self._start(0), self._start(1)
        self._await(trainer, self._name(0))
        self._await(peer, self._name(1))
        self._process = trainer

    @property
    def pid(self) -> int:
        return self._process.pid

    def enter(self, name: str) -> None:
        """Sends it into a call; raises CallFailed where it does not come to stand there."""
        order = number(name)
        self.page[At.ORDER] = float(order)
        if not self._until(ENTER_S, lambda: abs(self.page[At.STANDS]) == order):
            raise CallFailed(f"did not come to stand in it: {self.said()}")
        time.sleep(SETTLE_S)
        self.check()

    def check(self) -> None:
        """Raises CallFailed where the call it was sent into ended with an error."""
        if self.page[At.STANDS] < 0:
            raise CallFailed(f"failed in it: {self.said()}")

    def leave(self) -> None:
        """Calls it back; raises CallFailed where it does not come."""
        self.page[At.ORDER] = 0.0
        if not self._until(LEAVE_S, lambda: self.page[At.STANDS] == 0):
            raise CallFailed(f"did not leave it: {self.said()}")

    def again(self) -> None:
        """Ends it, and starts another in its place."""
        self.kill()
        for at in At:
            self.page[at] = 0.0
        self.lost += 1
        self._process = self._start(0)
        self._await(self._process, self._name(0))

    def kill(self) -> None:
        """Ends it; a process whose kernels wait goes as soon as the driver lets it."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(LEAVE_S)

    def harm(self) -> str:
        """What became of it that ought not to; empty where it is well."""
        stat = Proc().stat(self.pid)
        if self._process.poll() is not None or stat is None:
            return f"died with status {self._process.returncode}: {self.said()}"
        return f"was left in state {stat.state}" if stat.state in "TtZX" else ""

    def said(self) -> str:
        return self._here.said(self._name(0)) or "it said nothing"

    def _until(self, patience_s: float, met: Callable[[], bool]) -> bool:
        until = time.monotonic() + patience_s
        while not met():
            if time.monotonic() > until or self._process.poll() is not None:
                return False
            time.sleep(_LOOK_S)
        return True

    def _name(self, rank: int) -> str:
        return f"peer-{rank}" if rank else f"trainer-{self.lost}"

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        environ = rank_environ(rank, 2) | nccl_environ(rank) | {"PYTHONPATH": os.fspath(BENCH), "OMP_NUM_THREADS": "1"}
        environ |= {"LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self._port}
        dry = ("--dry",) if self._stand.dry else ()
        return self._here.start(self._name(rank), str(_SCRIPT), str(self._file), *dry, **environ)

    def _await(self, process: subprocess.Popen[bytes], name: str) -> None:
        if first_line(process, START_S) != "ready":
            raise NotStarted(f"{name} did not start: {self._here.said(name)}")
