"""Who restarts the job: `hangdog run`, or torchrun, which is itself started again where it ends, as a scheduler would do."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ettr.failures import MACHINES, RANKS_EACH
from hangdog.supervising.descendants import with_environ

TRAINER = Path(__file__).with_name("train.py")
#: Marks the processes of a side, and of one of its machines.
SIDE, MACHINE = "HANGDOG_BENCH_SIDE", "HANGDOG_BENCH_MACHINE"
#: Machines that `hangdog run` may take in place of others.
SPARES = 3
#: A torchrun that ended is started again after so long. Seconds.
AGAIN_S = 10
#: Failures are minutes apart here, and months in earnest: an episode ends sooner, and a day may have more steps.
LADDER = ("--ladder", "steady_s=120", "--ladder", "a_day=60")
_QUIET = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
#: Else ranks of a new round read from the launchers' store where those of the last round listened: gloo then connects to nobody.
_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@dataclass(slots=True)
class Restarted:
    """One side at work: its folder, its processes, and how they are told from those of the other one."""

    name: str
    folder: Path
    processes: list[subprocess.Popen[bytes]]

    @property
    def mark(self) -> str:
        return f"{self.name}-{os.getpid()}"

    def of_rank(self, rank: int) -> set[int]:
        return set(with_environ("RANK", str(rank))) & self.all()

    def ranks(self) -> set[int]:
        return {pid for rank in range(MACHINES * RANKS_EACH) for pid in self.of_rank(rank)}

    def beside(self, rank: int) -> set[int]:
        """All processes of the machine where a rank is now."""
        mine = self.of_rank(rank)
        return next((all_ for all_ in map(self.of_machine, self._machines()) if mine & all_), mine)

    def _machines(self) -> list[str]:
        return [f"node-{number}" for number in range(MACHINES + SPARES)]

    def of_machine(self, machine: str) -> set[int]:
        return set(with_environ(MACHINE, machine)) & self.all()

    def all(self) -> set[int]:
        return set(with_environ(SIDE, self.mark))

    def end(self) -> None:
        """Ends what was started, and all that is left of it."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self.all() - {os.getpid()}:
            os.kill(pid, signal.SIGKILL)


def by_hangdog(folder: Path, steps: int) -> Restarted:
    """`hangdog run` with two machines and some to spare; torchrun restarts nothing by itself."""
    side = Restarted("hangdog", folder, [])
    names = [word for number in range(MACHINES) for word in ("--machine", f"node-{number}")]
    names += [word for number in range(SPARES) for word in ("--spare", f"node-{MACHINES + number}")]
    job = (
        *("env", f"{SIDE}={side.mark}", MACHINE + "={machine}", sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(MACHINES), "--node-rank", "{index}", "--nproc-per-node", str(RANKS_EACH)),
        *("--master-addr", "127.0.0.1", "--master-port", "{port}"),
    )
    run = (sys.executable, "-m", "hangdog", "run", "--state", str(folder / "state"), *names, *LADDER, "--")
    side.processes.append(_started(folder / "log", [*run, *job, str(TRAINER), str(folder), str(steps)]))
    return side


def by_torchrun(folder: Path, steps: int, port: int) -> Restarted:
    """An elastic torchrun on each machine, which is started again until it succeeds."""
    side = Restarted("torchrun", folder, [])
    for number in range(MACHINES):
        torchrun = [
            *("env", f"{SIDE}={side.mark}", f"{MACHINE}=node-{number}", sys.executable, "-m", "torch.distributed.run"),
            *("--nnodes", str(MACHINES), "--nproc-per-node", str(RANKS_EACH), "--max-restarts", "100"),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job"),
            *("--rdzv-conf", f"is_host={int(number == 0)}"),
        ]
        words = shlex.join([*torchrun, str(TRAINER), str(folder), str(steps)])
        again = f"until {words}; do sleep {AGAIN_S}; done"
        side.processes.append(_started(folder / f"log-{number}", ["bash", "-c", again], _OWN_STORE))
    return side


def _started(
    log: Path, words: Sequence[str], environ: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(
            words, env={**os.environ, **_QUIET, **environ}, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
