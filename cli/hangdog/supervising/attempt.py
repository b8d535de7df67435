"""One start of the job: a process for each machine with a log of its own, and its end to the last descendant."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from hangdog.supervising.descendants import descendants, kill, pause, reap
from hangdog.supervising.logs import JobLog

#: Tells which machine a process stands for, and which attempt it belongs to.
MACHINE_ENV, TOKEN_ENV = "HANGDOG_RUN_MACHINE", "HANGDOG_RUN_TOKEN"
#: The same machine, of this supervisor: an agent must not see what another one starts on the same host.
HOST_ENV = "HANGDOG_RUN_PLACE"
#: Time for the kernel to carry out SIGKILL; a process that needs longer hangs in the kernel, and its machine with it. Seconds.
DEATH_S = 30.0
#: What the first process that fails leaves the others: they are told by it why they end. Seconds.
WAKE_S = 5.0


def host_tag(machine: str) -> str:
    """What the processes of a machine carry as PLACE."""
    return f"{machine}-{os.getpid()}"


class Attempt:
    """A running job. `logs` are those of the machines, in the order of the job's."""

    def __init__(
        self, commands: Mapping[str, Sequence[str]], environ: Mapping[str, str], folder: Path, logs: Sequence[JobLog]
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._logs = dict(zip(commands, logs, strict=False))
        self._processes = {}
        self._failed_at: float | None = None
        for machine, command in commands.items():
            path = folder / f"{machine}.log"
            with path.open("ab") as log:  # a file and no pipe: nobody has to read it for the job to go on
                self._processes[machine] = subprocess.Popen(
                    (sys.executable, "-P", "-m", "hangdog.supervising.parent_death", str(os.getpid()), *command),
                    env={**environ, MACHINE_ENV: machine, HOST_ENV: host_tag(machine)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._logs[machine].switch_to(path)

    def follow(self, pass_on: Callable[[bytes], None]) -> bool:
        """Passes on what its processes wrote; whether any of it tells a step."""
        stepped = [log.follow(pass_on) for log in self._logs.values()]
        return any(stepped)

    def ended(self, now: float) -> Mapping[str, int] | None:
        """The statuses of those that ended, by machine, once all have, or one failed a while ago; None before."""
        statuses = {machine: process.poll() for machine, process in self._processes.items()}
        over = {machine: status for machine, status in statuses.items() if status is not None}
        if any(over.values()) and self._failed_at is None:
            self._failed_at = now
        waited = self._failed_at is not None and now - self._failed_at >= WAKE_S
        return over if len(over) == len(statuses) or waited else None

    def last_lines(self) -> Mapping[str, str]:
        """The end of what each wrote."""
        return {machine: log.last_lines for machine, log in self._logs.items()}

    def end(self, grace_s: float, others: Collection[int]) -> int:
        """Ends the job and all that descends from it, but not the processes `others`; how many would not die."""
        own = {process.pid for process in self._processes.values()}
        until = time.monotonic() + grace_s
        for pid in own & set(descendants(os.getpid())):
            for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process acts upon SIGTERM only when it goes on
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)
        while time.monotonic() < until and self._left(others):
            pause()
        until = time.monotonic() + DEATH_S
        while (left := self._left(others)) and time.monotonic() < until:
            kill(left, signal.SIGKILL)
            pause()
        return len(left)

    def _left(self, others: Collection[int]) -> tuple[int, ...]:
        for process in self._processes.values():
            process.poll()
        reap({*others, *(process.pid for process in self._processes.values())})
        return descendants(os.getpid(), others)
