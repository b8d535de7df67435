"""Has hangdog watch the job: a server and an agent for each machine are started unless there are some, and verdicts come back."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hangdog.demo.pipes import first_line
from hangdog.supervising.attempt import PLACE, place
from hangdog_models.errors import HangdogError, OurFault
from hangdog_models.verdict import Verdict
from hangdog_proto.client import Client
from hangdog_proto.reach import Reach

#: A server listens after a second or two. Seconds.
SERVER_S = 60.0
#: Incidents of one attempt that are looked through: one that stays open is looked into again and again, more and more rarely.
INCIDENTS = 20
#: Between a part that died and its next start. Seconds.
AGAIN_S = 10.0


class Watcher(Protocol):
    """Whoever comes to verdicts about a job."""

    def verdict(self, job: str) -> tuple[str, Verdict] | None:
        """The newest verdict about this job, with the name of its incident; raises HangdogError when nobody answers."""

    def tend(self, now: float) -> None:
        """Sees to it that whatever watches is still there; called again and again."""

    def processes(self) -> Collection[int]:
        """Those that watch: they belong to no attempt."""


class Cluster:
    """A server that is there already, with agents of its own."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def verdict(self, job: str) -> tuple[str, Verdict] | None:
        with Client(self._reach) as client:
            for line in client.incidents(job, INCIDENTS):
                if line.verdict:
                    verdict = client.incident(line.id)[1]
                    return (line.id, verdict) if verdict is not None else None
        return None

    def tend(self, now: float) -> None:
        pass

    def processes(self) -> Collection[int]:
        return ()


class Local:
    """A server and agents on this host, each agent seeing only what stands for its machine; `opened` ends them."""

    def __init__(self, folder: Path, machines: Sequence[str], settings: Sequence[str]) -> None:
        self._folder = folder
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self._started: dict[str, float] = {}
        store = ("--store", str(folder / "hangdog.db"))
        server = self._start("server", ("hangdog", "server", "--listen", "127.0.0.1:0", *store))
        line = first_line(server, SERVER_S)
        if not line.startswith("listening on "):
            raise OurFault("the server that is to watch the job did not start", f"{folder / 'server.log'} says why")
        address = line.removeprefix("listening on ").strip()
        self._commands: Mapping[str, Sequence[str]] = {
            "server": ("hangdog", "server", "--listen", address, *store),
            **{
                f"agent-{name}": (
                    *(
                        "hangdog_agent.main",
                        "--server",
                        address,
                        "--machine",
                        name,
                        "--match-env",
                        f"{PLACE}={place(name)}",
                    ),
                    *(word for setting in settings for word in ("--set", setting)),
                )
                for name in machines
            },
        }
        for name in list(self._commands)[1:]:
            self._start(name, self._commands[name])
        self._cluster = Cluster(Reach(address))

    @classmethod
    @contextlib.contextmanager
    def opened(cls, folder: Path, machines: Sequence[str], settings: Sequence[str]) -> Iterator["Local"]:
        folder.mkdir(parents=True, exist_ok=True)
        local = cls.__new__(cls)
        local._parts = {}
        try:
            cls.__init__(local, folder, machines, settings)
            yield local
        finally:
            local.close()

    def close(self) -> None:
        for part in self._parts.values():
            part.terminate()
        for part in self._parts.values():
            try:
                part.wait(AGAIN_S)
            except subprocess.TimeoutExpired:
                part.kill()
                part.wait()
            if part.stdout is not None:
                part.stdout.close()

    def verdict(self, job: str) -> tuple[str, Verdict] | None:
        return self._cluster.verdict(job)

    def tend(self, now: float) -> None:
        """Starts again what died: its log says of what."""
        for name, part in list(self._parts.items()):
            if part.poll() is not None and now - self._started.get(name, 0.0) >= AGAIN_S:
                self._started[name] = now
                if part.stdout is not None:
                    part.stdout.close()
                self._start(name, self._commands[name])

    def processes(self) -> Collection[int]:
        return [part.pid for part in self._parts.values()]

    def _start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        own = {key: value for key, value in os.environ.items() if not key.startswith("HANGDOG_")}
        with (self._folder / f"{name}.log").open("ab") as log:
            part = self._parts[name] = subprocess.Popen(
                (
                    sys.executable,
                    "-P",
                    "-m",
                    "hangdog.supervising.tether",
                    str(os.getpid()),
                    sys.executable,
                    "-P",
                    "-m",
                    *command,
                ),
                env=own,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if name == "server" else log,
                stderr=log,
                start_new_session=True,
            )
        return part


def newest(watcher: Watcher, job: str) -> tuple[str, Verdict] | None:
    """The newest verdict; None, too, while nobody answers: the job goes on, and is asked after again."""
    try:
        return watcher.verdict(job)
    except HangdogError:
        return None
