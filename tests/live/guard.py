"""A real server and one real agent for each machine of a live job of these tests."""

from pathlib import Path

from frameworks.guard import ClusterGuard
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.settings import AgentSettings
from hangdog_server.settings import ServerSettings
from live.job import MACHINE, AnnouncingProc, Job


class Guard(ClusterGuard):
    """Watches over a live job until its block is left."""

    def __init__(self, job: Job, folder: Path, server: ServerSettings | None = None) -> None:
        """`server` are the server's settings, where they are not the default ones."""
        settings = AgentSettings()

        def watch(machine: str) -> Watch:
            table = ProcessTable(AnnouncingProc(job.announced), frozenset([MACHINE]))
            return Watch(table, (MACHINE, machine), (), settings.link.forget_s)

        super().__init__({machine: watch(machine) for machine in job.plan.machines}, folder, settings, server)
