"""One server with pages, people and a receiver of notices, and one real agent for each machine, over jobs that come and go."""

import subprocess
import sys
import threading
import time
from collections import ChainMap
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import httpx

from frameworks.guard import Agents
from hangdog.demo.conductor import free_port
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.settings import AgentSettings
from hangdog_server.auth import tokens
from hangdog_server.auth.tokens import Role
from live.job import MACHINE, AnnouncingProc, Job
from live.plan import Plan

#: Who is on call: both may act.
PEOPLE = ("ada", "ben")
#: A machine without a job: without one hangdog isolates none.
SPARE = "node-9"
#: Ending the server. Seconds.
PATIENCE_S = 30.0
_ACTING = """mode = "approve"
actors = ["exclude-file"]
stop = "{folder}/stop"

[caps]
per_hour = 100
per_job = 100
per_domain = 100
share = 1.0
breaker_share = 1.0

[exclude-file]
path = "{folder}/excluded"
"""
_NOTIFY = """link = "{link}"

[to.on-call]
about = ["opened", "judged", "response", "recovered", "approval", "acted", "convicted", "breaker"]
url_file = "{folder}/receiver"
"""


def now() -> float:
    """Unix seconds: what the server, its agents and the people of this night go by."""
    return time.time()  # noqa: TID251  # a night passes in real time


@dataclass(frozen=True, slots=True)
class Known:
    """What the server says of an incident: its verdict's kind, when that came (Unix seconds), after how long the job went on."""

    id: str
    kind: str
    changed: float
    went_on_s: float


class LaterProc(AnnouncingProc):
    """Lists no process while a job starts: one that is read before it has announced itself would never be asked again."""

    def __init__(self, announced: Mapping[int, Mapping[str, str]], starting: threading.Lock) -> None:
        super().__init__(announced)
        self._starting = starting

    def pids(self) -> tuple[int, ...]:
        with self._starting:
            return super().pids()


class NightCluster(Agents):
    """A server in a process of its own, and agents; `tokens` are those of the people, `web` where pages are."""

    def __init__(self, folder: Path, plan: Plan, receiver: str) -> None:
        """`plan` has the machines; `receiver` is the address that notices are sent to."""
        settings = AgentSettings()
        #: What the ranks of each job announce, by process.
        self.announced: ChainMap[int, Mapping[str, str]] = ChainMap()
        self._starting = threading.Lock()

        def watch(machine: str) -> Watch:
            table = ProcessTable(LaterProc(self.announced, self._starting), frozenset([MACHINE]))
            return Watch(table, (MACHINE, machine), (), settings.link.forget_s)

        web = f"127.0.0.1:{free_port()}"
        self.tokens = {name: tokens.new(folder / "tokens.json", name, Role.ACT, now()) for name in PEOPLE}
        self.web = f"http://{web}"
        (folder / "acting.toml").write_text(_ACTING.format(folder=folder))
        (folder / "notify.toml").write_text(_NOTIFY.format(folder=folder, link=self.web))
        (folder / "receiver").write_text(receiver.replace("http://", "json://"))
        (folder / "receiver").chmod(0o600)
        server = (sys.executable, Path(__file__).with_name("server.py"), folder, web)
        self._server = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        address = self._server.stdout.readline().strip()
        assert address, "the server did not start"
        headers = {"authorization": f"Bearer {self.tokens['ada']}"}
        self._http = httpx.Client(
            base_url=self.web, headers=headers, timeout=30, limits=httpx.Limits(keepalive_expiry=1.0)
        )
        super().__init__({machine: watch(machine) for machine in (*plan.machines, SPARE)}, settings, address)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._http.close()
        self._server.communicate(timeout=PATIENCE_S)

    def incidents(self) -> list[Known]:
        """All incidents so far."""
        lines = self._http.get("/api/incidents").raise_for_status().json()["incidents"]
        return [Known(one["id"], one["verdict"] or "", one["changed"], one["went_on_s"] or 0.0) for one in lines]

    def start(self, job: Job, until: ExitStack, hidden: str = "") -> None:
        """Starts a job, which ends with `until`, and has the agents see its ranks, but those on a machine that is `hidden`."""
        with self._starting:
            until.enter_context(job)
            seen = {pid: told for pid, told in job.announced.items() if told[MACHINE] != hidden}
            self.announced.maps.append(seen)  # type: ignore[arg-type]  # it is read only
