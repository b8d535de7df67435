"""A server and agents on this host, started around a job that no others watch: each agent sees one machine's processes only."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hangdog.demo.pipes import first_line
from hangdog.supervising.attempt import HOST_ENV, host_tag
from hangdog.supervising.watcher import WatchedCluster
from hangdog_models.errors import OurFault
from hangdog_models.verdict import Verdict
from hangdog_proto.client.server_address import ServerAddress

#: A server listens after a second or two. Seconds.
SERVER_S = 60.0
#: Between a part that died and its next start, and for parts to end in order. Seconds.
RESTART_S = 10.0


class LocalCluster:
    """A Watcher of its own; leaving the context ends it. `settings` are those of the agents, as NAME=NUMBER."""

    def __init__(self, folder: Path, machines: Sequence[str], settings: Sequence[str]) -> None:
        self._folder, self._machines, self._settings = folder, machines, settings
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, Sequence[str]] = {}
        self._started: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start_all()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def server(self) -> ServerAddress:
        return self._cluster.server

    def verdict(self, job: str) -> tuple[str, Verdict] | None:
        return self._cluster.verdict(job)

    def test(self, machines: Sequence[str], levels: Sequence[int], budget_s: float, why: str) -> Mapping[str, Any]:
        return self._cluster.test(machines, levels, budget_s, why)

    def restart_dead(self, now: float) -> None:
        """Starts again what died: its log says of what."""
        for name, part in list(self._parts.items()):
            if part.poll() is not None and now - self._started.get(name, 0.0) >= RESTART_S:
                self._started[name] = now
                if part.stdout is not None:
                    part.stdout.close()
                self._start(name)

    def processes(self) -> Collection[int]:
        return [part.pid for part in self._parts.values()]

    def _start_all(self) -> None:
        server = ("hangdog", "server", "--store", str(self._folder / "hangdog.db"), "--listen")
        self._commands["server"] = (*server, "127.0.0.1:0")
        line = first_line(self._start("server"), SERVER_S)
        if not line.startswith("listening on "):
            raise OurFault(
                "the server that watches the job did not start",
                f"{self._folder / 'server.log'} says why",
                code="server-not-started",
            )
        address = line.removeprefix("listening on ").strip()
        self._commands["server"] = (
            *server,
            address,
        )  # should it have to be started again: there the agents look for it
        self._cluster = WatchedCluster(ServerAddress(address))
        chosen = [word for setting in self._settings for word in ("--set", setting)]
        for name in self._machines:
            seeing = ("--machine", name, "--match-env", f"{HOST_ENV}={host_tag(name)}")
            self._commands[f"agent-{name}"] = ("hangdog_agent.main", "--server", address, *seeing, *chosen)
            self._start(f"agent-{name}")

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        python = (sys.executable, "-P", "-m")  # -P: a file torch.py in the user's folder is not what is meant
        own = {key: value for key, value in os.environ.items() if not key.startswith("HANGDOG_")}
        with (self._folder / f"{name}.log").open("ab") as log:
            self._parts[name] = subprocess.Popen(
                (*python, "hangdog.supervising.parent_death", str(os.getpid()), *python, *self._commands[name]),
                env=own,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if name == "server" else log,
                stderr=log,
                start_new_session=True,
            )
        return self._parts[name]

    def _end(self) -> None:
        for part in self._parts.values():
            part.terminate()
        for part in self._parts.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                part.wait(RESTART_S)
            if part.poll() is None:
                part.kill()
                part.wait()
            if part.stdout is not None:
                part.stdout.close()
