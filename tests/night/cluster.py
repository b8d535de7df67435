"""One server with pages, people and a receiver of notices, and one real agent for each machine, over jobs that come and go."""

import threading
import time
from collections import ChainMap
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from frameworks.guard import ClusterGuard, ServedTo
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.settings import AgentSettings
from hangdog_models.actions.caps import Mode
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.auth import tokens
from hangdog_server.auth.tokens import Role
from hangdog_server.listener import ListenerConfig
from hangdog_server.notifications.notify_config import NotifyConfig, Receiver, Subjects
from hangdog_server.settings import ServerSettings
from live.job import MACHINE, AnnouncingProc, Job
from live.plan import Plan
from support.servers.browsed import free_port
from support.servers.cast_acting import WIDE

#: Between two looks at a job that seems to stand still: longer than usual, so that people see what is shown meanwhile. Seconds.
LOOK_S = 6.0
#: Who is on call: both may act.
PEOPLE = ("ada", "ben")
#: A machine without a job: without one hangdog isolates none.
SPARE = "node-9"


def now() -> float:
    """Unix seconds: what the server, its agents and the people of this night go by."""
    return time.time()  # noqa: TID251  # a night passes in real time


class LaterProc(AnnouncingProc):
    """Lists no process while a job starts: one that is read before it has announced itself would never be asked again."""

    def __init__(self, announced: Mapping[int, Mapping[str, str]], starting: threading.Lock) -> None:
        super().__init__(announced)
        self._starting = starting

    def pids(self) -> tuple[int, ...]:
        with self._starting:
            return super().pids()


class NightCluster(ClusterGuard):
    """Watches over whatever job runs, until its block is left; `tokens` are those of the people, `web` where pages are."""

    def __init__(self, folder: Path, plan: Plan, receiver: str) -> None:
        """`plan` has the machines; `receiver` is the address that notices are sent to."""
        settings = AgentSettings()
        #: What the ranks of each job announce, by process.
        self.announced: ChainMap[int, Mapping[str, str]] = ChainMap()
        self._starting = threading.Lock()

        def watch(machine: str) -> Watch:
            table = ProcessTable(LaterProc(self.announced, self._starting), frozenset([MACHINE]))
            return Watch(table, (MACHINE, machine), (), settings.link.forget_s)

        file, web = folder / "tokens.json", f"127.0.0.1:{free_port()}"
        self.tokens = {name: tokens.new(file, name, Role.ACT, now()) for name in PEOPLE}
        self.web = f"http://{web}"
        url = receiver.replace("http://", "json://")
        served = ServedTo(
            ListenerConfig(tokens=file, audit=folder / "audit.jsonl", web=web),
            ActionsConfig(Mode.APPROVE, WIDE, (ExcludeFile(folder / "excluded"),), folder / "stop"),
            NotifyConfig((Receiver("on-call", url, frozenset(Subjects)),), self.web),
            now,
        )
        machines = {machine: watch(machine) for machine in (*plan.machines, SPARE)}
        super().__init__(
            machines, folder, settings, replace(ServerSettings(), returned_s=0.0, interval_s=LOOK_S), served=served
        )

    def start(self, job: Job, until: ExitStack, hidden: str = "") -> None:
        """Starts a job, which ends with `until`, and has the agents see its ranks, but those on a machine that is `hidden`."""
        with self._starting:
            until.enter_context(job)
            seen = {pid: told for pid, told in job.announced.items() if told[MACHINE] != hidden}
            self.announced.maps.append(seen)  # type: ignore[arg-type]  # it is read only
