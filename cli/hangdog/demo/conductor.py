"""Plays the demo: a job with server and agents around it, one rank broken from outside, and a verdict asked for."""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from hangdog.demo.demo_plan import DemoOutcome, DemoPlan
from hangdog.demo.evidence import write_bundle
from hangdog.demo.faults import Victim
from hangdog.demo.memory_growth import MemoryGrowth
from hangdog.demo.pipes import first_line, whole_output
from hangdog.demo.processes import Processes
from hangdog.demo.shape import MACHINES, RANKS_PER_MACHINE, TOKENS_PER_STEP, WORLD_SIZE, machine, topology
from hangdog.demo.step_reports import StepReports, TrainingStep
from hangdog_models.errors import OurFault
from hangdog_models.verdict import Verdict, from_json

#: The server listens after a second or two. Seconds.
SERVER_START_S = 60.0
#: From the start to the step after which the fault strikes; most of it goes into loading torch eight times. Seconds.
TRAINING_S = 300.0
#: From the fault to the standstill: loaders hold some batches in stock, a checkpoint is due every fifth step. Seconds.
ONSET_S = 120.0
#: The broken rank's memory must have come to rest for so long, which a rank that collects garbage fills first. Seconds.
QUIET_S = 2.5
#: The server waits for its agents some 25 s, then it judges. Seconds.
ANSWER_S = 120.0
#: How long one wait for news lasts: whatever else is waited for is looked at so often. Seconds.
TICK_S = 0.25
#: Variables of other jobs and launchers that must not reach ours, by the beginning of their names.
FOREIGN = (
    "HANGDOG_",
    "TORCHELASTIC_",
    "SLURM_",
    "OMPI_",
    "PMI",
    "RANK",
    "LOCAL_",
    "GROUP_",
    "ROLE_",
    "WORLD_",
    "MASTER_",
)
#: Ports that no kernel's default gives to connections, and how many of them are tried.
_PORTS, _TRIED = range(20_000, 32_000), 20
#: Statuses of a command that ends in a verdict.
ANSWERED = (0, 1, 2)

PrintLine = Callable[[str], None]
#: What is done with the outcome while everything still runs and is shown at an address.
WhileRunning = Callable[[DemoOutcome, str], None]


def run_demo(
    plan: DemoPlan, folder: Path, tell: PrintLine, keep: Path | None = None, stay: WhileRunning | None = None
) -> DemoOutcome:
    """Runs the whole demo with its files in `folder`, leaves no process behind, and writes the evidence to `keep`.

    With `stay` the server shows pages, and all of it goes on for as long as that takes.
    """
    with Processes(folder) as processes:
        stage = DemoStage(plan, folder, processes, tell, web=f"127.0.0.1:{free_port()}" if stay else "")
        onset_s = stage.train_until_stuck()
        verdict, verdict_s = stage.ask_why()
        while (later := stage.went_on_for()) is not None:
            onset_s = later
            verdict, verdict_s = stage.ask_why()
        outcome = DemoOutcome(plan, verdict, onset_s, verdict_s)
        if keep is not None:
            write_bundle(keep, plan.job, stage.capture)
        if stay is not None:
            stay(outcome, f"http://{stage.web}/")
        return outcome


class DemoStage:
    """The running demo: server, agents and ranks."""

    def __init__(self, plan: DemoPlan, folder: Path, processes: Processes, tell: PrintLine, web: str = "") -> None:
        self.web = web
        self._plan, self._folder, self._processes, self._tell = plan, folder, processes, tell
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        # loader workers are ended before they could remove their sockets: these must lie where all of it is removed
        (folder / "tmp").mkdir()
        self._environ = own | {"TMPDIR": str(folder / "tmp")}
        self._server = self._start_server()
        for name in MACHINES:
            self._run(f"agent-{name}", "hangdog_agent.main", "--server", self._server, *_agent_options(name))
        ranks = self._start_ranks()
        self._pids = {rank: process.pid for rank, process in ranks.items()}
        self._progress = StepReports(
            {rank: process.stdout for rank, process in ranks.items()}, lambda rank: processes.last_line(f"rank-{rank}")
        )
        self._struck_at = time.monotonic()

    def train_until_stuck(self) -> float:
        """Shows the training, breaks a rank in it, and answers for how many seconds the job went on after that."""
        plan = self._plan
        for step in self._steps(TRAINING_S, "the demo's job does not train"):
            if step is not None and step.number >= plan.after_step:
                break
        self._tell("a fault is injected somewhere")
        self._struck_at = time.monotonic()
        plan.fault.strike(Victim(self._pids[plan.rank], self._folder / f"rank-{plan.rank}", random.Random(plan.seed)))
        return self._still_after(self._steps(ONSET_S, f"the job trains on in spite of the fault {plan.fault.name}"))

    def ask_why(self) -> tuple[Verdict, float]:
        """The verdict of a snapshot, asked for as a person on call would, and the seconds it took.

        Raises OurFault when there is none.
        """
        self._tell(f"no rank has finished a step for {self._progress.since_step_s():.0f} s: hangdog is asked why")
        asked = time.monotonic()
        command = ("snapshot", "--server", self._server, "--job", self._plan.job, "--format", "json")
        verdict = from_json(self._json_output("snapshot", self._run("snapshot", "hangdog", *command)))
        return verdict, time.monotonic() - asked

    def went_on_for(self) -> float | None:
        """As `train_until_stuck`, if a step was finished since hangdog was asked; else None.

        A busy machine may hold all ranks up while their loaders still have batches. That is not the fault's standstill.
        """
        steps = self._steps(ONSET_S, f"the job trains on in spite of the fault {self._plan.fault.name}")
        if next(steps) is None:
            return None
        self._tell("the job went on: what hangdog was asked about was a pause")
        return self._still_after(steps)

    def _still_after(self, steps: Iterator[TrainingStep | None]) -> float:
        """Follows the steps to the standstill; the seconds from the fault to the last of them."""
        growth = MemoryGrowth(self._pids[self._plan.rank])
        for _ in steps:
            resting_s = growth.stable_s()
            if self._progress.stalled() and resting_s > QUIET_S:
                break
        return max(0.0, time.monotonic() - self._progress.since_step_s() - self._struck_at)

    def capture(self, name: str) -> dict[str, Any]:
        """What the agent of one machine sees now, as the JSON object it prints."""
        return self._json_output(
            f"look-{name}", self._run(f"look-{name}", "hangdog_agent.main", "--once", *_agent_options(name))
        )

    def _start_server(self) -> str:
        store = str(self._folder / "hangdog.db")
        pages = ("--web", self.web) if self.web else ()
        server = self._run("server", "hangdog", "server", "--listen", "127.0.0.1:0", "--store", store, *pages)
        line = first_line(server, SERVER_START_S)
        if not line.startswith("listening on "):
            raise OurFault(
                f"the demo's server did not start: {self._processes.last_line('server')}", code="server-not-started"
            )
        return line.removeprefix("listening on ").strip()

    def _start_ranks(self) -> dict[int, subprocess.Popen[bytes]]:
        port = free_port()
        ranks: dict[int, subprocess.Popen[bytes]] = {}
        for rank in range(WORLD_SIZE):
            (self._folder / f"rank-{rank}").mkdir()
            launch = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank % RANKS_PER_MACHINE),
                "WORLD_SIZE": str(WORLD_SIZE),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",  # gloo would else ask the resolver for this host's name
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "HANGDOG_JOB": self._plan.job,
                "HANGDOG_TOPOLOGY": topology(),
                "HANGDOG_DEMO_MACHINE": machine(rank),
            }
            arguments = (str(self._folder), str(self._plan.seed))
            ranks[rank] = self._run(f"rank-{rank}", "hangdog.demo.job.train", *arguments, environ=launch)
        return ranks

    def _run(
        self, name: str, module: str, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        # -P: a file torch.py in the user's folder is not what is meant by `import torch`
        command = (sys.executable, "-P", "-m", module, *arguments)
        return self._processes.start(name, command, self._environ | dict(environ or {}))

    def _steps(self, patience_s: float, why: str) -> Iterator[TrainingStep | None]:
        """Tells each finished step and yields it, and None whenever there is no news; raises OurFault if that lasts too long."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            for step in self._progress.follow(TICK_S):
                rate = TOKENS_PER_STEP / step.seconds
                self._tell(f"step {step.number:3}   loss {step.loss:6.3f}   {rate:6.0f} tokens/s")
                yield step
            yield None
        raise OurFault(
            f"{why} within {patience_s:g} s; rank 0's last line: {self._processes.last_line('rank-0')}",
            code="demo-failed",
        )

    def _json_output(self, name: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The JSON object a command prints; what it says meanwhile on stderr is passed on."""
        with self._processes.log(name).open(errors="replace") as log:
            text = whole_output(process, ANSWER_S, lambda: self._forward(log))
        if process.returncode not in ANSWERED:
            words = self._processes.last_line(name)
            raise OurFault(f"the demo's {name} ended with status {process.returncode}: {words}", code="demo-failed")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _forward(self, log: TextIO) -> None:
        for line in log:
            self._tell(f"  {line.rstrip()}")


def _agent_options(name: str) -> tuple[str, ...]:
    return ("--machine", name, "--match-env", f"HANGDOG_DEMO_MACHINE={name}")


def free_port() -> int:
    """A port nobody listens on now; the ranks' store takes it a few seconds later.

    It is below those that the kernel gives to connections, one of which may have taken it by then.
    """
    for port in random.SystemRandom().sample(_PORTS, _TRIED):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        given: int = probe.getsockname()[1]
        return given
