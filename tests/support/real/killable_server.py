"""A server as a program that can be killed and starts again on its store, and the other programs of its cluster."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from hangdog.demo.conductor import free_port
from hangdog.demo.pipes import first_line
from hangdog_models.incident import Incident
from hangdog_models.verdict import Verdict
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress

#: What says of these tests themselves that they are part of a job, or sets hangdog up.
_FOREIGN = ("HANGDOG_", "SLURM_", "RANK", "LOCAL_RANK", "WORLD_")
#: How often the server is asked anew. Seconds.
POLL_S = 0.25


def clean_environ(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of these tests without what would make their programs part of another job."""
    return {name: value for name, value in environ.items() if not name.startswith(_FOREIGN)}


class KillableServer:
    """It and all that is started beside it end with `stack`; what they print is in `folder`."""

    def __init__(self, folder: Path, stack: ExitStack, patience_s: float) -> None:
        """`patience_s`: how long anything that is waited for may take on a busy machine."""
        self.address = f"127.0.0.1:{free_port()}"
        self._folder, self._stack, self._patience_s = folder, stack, patience_s
        self._server = self._serve()

    def start(
        self, *command: str, env: Mapping[str, str], log: str = "log", piped: bool = False
    ) -> subprocess.Popen[bytes]:
        """Starts a Python program; `piped`: what it prints is read from the process, else it goes to `log` as its errors do."""
        file = self._stack.enter_context((self._folder / log).open("ab"))
        out = subprocess.PIPE if piped else file
        process = subprocess.Popen((sys.executable, *command), env=env, stdout=out, stderr=file)
        if process.stdout is not None:
            self._stack.callback(process.stdout.close)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        return process

    def kill_and_serve_again(self) -> None:
        self._server.send_signal(signal.SIGKILL)
        self._server.wait()
        self._server = self._serve()

    def knows(self, ranks: int) -> None:
        """Returns once machines are connected on which so many ranks run."""
        until = self.deadline()
        while True:
            with Client(ServerAddress(self.address)) as client:
                lines = [line for line in client.machines() if line.connected]
            if lines and sum(len(job.ranks) for line in lines for job in line.jobs) == ranks:
                return
            self.wait(until)

    def incidents(self, why: str) -> list[Incident]:
        """Those that were opened for this reason, the newest first."""
        with Client(ServerAddress(self.address)) as client:
            return [line for line in client.incidents("", 9) if line.why.startswith(why)]

    def verdict(self, incident: str) -> Verdict | None:
        with Client(ServerAddress(self.address)) as client:
            return client.incident(incident)[1]

    def deadline(self) -> float:
        return time.monotonic() + self._patience_s

    def wait(self, until: float) -> None:
        """Lets a moment pass; fails with what was printed, once it is later than `until`."""
        assert time.monotonic() < until, (self._folder / "log").read_text()
        time.sleep(POLL_S)

    def _serve(self) -> subprocess.Popen[bytes]:
        command = ("-m", "hangdog", "server", "--store", str(self._folder / "s.db"), "--listen", self.address)
        server = self.start(*command, env=clean_environ(), piped=True)
        assert first_line(server, self._patience_s).startswith("listening on ")
        return server
