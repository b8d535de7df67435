"""A real server and a real agent for each machine that a job's ranks say they run on, as processes of their own."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gpu.kit import Stand
from gpu.processes import Children
from hangdog_models.errors import OurFault
from hangdog_models.incident import Incident
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress

#: Where a rank's environment says which machine it stands for.
MACHINE = "HANGDOG_GPU_MACHINE"
START_S = 60.0


def place(folder: Path, machine: str) -> str:
    """What ranks and the agent of a machine know each other by: jobs of other parts are none of this part's."""
    return f"{folder}:{machine}"


class Cluster:
    """Watches until its block is left."""

    def __init__(self, stand: Stand, children: Children, folder: Path, machines: Sequence[str]) -> None:
        self.address = ""
        self._client: Client | None = None
        self._stand, self._children, self._folder, self._machines = stand, children, folder, machines

    def __enter__(self) -> Self:
        run = (self._stand.python, "-P", "-m")
        store = self._folder / "hangdog.db"
        server = self._children.start(
            "server", (*run, "hangdog", "server", "--listen", "127.0.0.1:0", "--store", store), {}
        )
        until, log = time.monotonic() + START_S, self._children.log("server")
        while not (line := _listening(log)):
            if server.poll() is not None or time.monotonic() > until:
                raise OurFault(f"the server did not start: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.1)
        self.address = line
        # they share one GPU, and the power it draws tells each of them whether it computes or spins
        checks = () if self._stand.dry else ("--checks",)
        for machine in self._machines:
            seeing = ("--machine", machine, "--match-env", f"{MACHINE}={place(self._folder, machine)}", *checks)
            command = (*run, "hangdog_agent.main", "--server", line, *seeing)
            self._children.start(f"agent-{machine}", command, {})
        self._client = Client(ServerAddress(line)).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.__exit__(kind, error, trace)

    def incidents(self, job: str) -> tuple[Incident, ...]:
        """What it remembers of a job, the oldest first."""
        assert self._client is not None
        return tuple(reversed(self._client.incidents(job, 1000)))

    def machines(self) -> int:
        """How many agents are connected."""
        assert self._client is not None
        return sum(line.connected for line in self._client.machines())

    def client(self) -> Client:
        assert self._client is not None
        return self._client


def _listening(log: Path) -> str:
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("listening on "):
            return line.removeprefix("listening on ").strip()
    return ""
