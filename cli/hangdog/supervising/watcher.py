"""Who watches a job and comes to verdicts about it: a server that is there already; or see local_cluster.py."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from hangdog_models import incident
from hangdog_models.errors import HangdogError, OurFault
from hangdog_models.incident import CRASHED_WHY, RUNS_ON
from hangdog_models.verdict import Verdict
from hangdog_proto.client.campaigns import CampaignClient
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress

#: Incidents of one attempt that are looked through: one that stays open is looked into again and again, more and more rarely.
INCIDENTS = 20
#: What an agent that was just started, or started again, needs until the server knows it, on a busy machine; and between two
#: questions whether it does. Seconds.
JOIN_S, AGAIN_S = 60.0, 0.5
#: Beyond its budget, at which tests are ended, what a campaign may take: to kill them, and to be told. Seconds.
END_S = 60.0


class Watcher(Protocol):
    """Whoever comes to verdicts about a job."""

    @property
    def server(self) -> ServerAddress:
        """The server that commands may ask to test machines."""

    def verdict(self, job: str) -> tuple[str, Verdict] | None:
        """The newest verdict about a standstill of this job, with the name of its incident; raises HangdogError when nobody answers.

        None where there is none, or the job has gone on since.
        """

    def test(self, machines: Sequence[str], levels: Sequence[int], budget_s: float, why: str) -> Mapping[str, Any]:
        """Has machines that run nothing tested, as `hangdog test run --machines`; the report. Raises HangdogError."""

    def restart_dead(self, now: float) -> None:
        """Sees to it that whatever watches is still there; called again and again."""

    def processes(self) -> Collection[int]:
        """Those that watch: they belong to no attempt."""


class WatchedCluster:
    """A server that is there already, with agents of its own."""

    def __init__(self, server: ServerAddress) -> None:
        self.server = server

    def verdict(self, job: str) -> tuple[str, Verdict] | None:
        with Client(self.server) as client:
            for line in client.incidents(job, INCIDENTS):
                if line.why.startswith(incident.SLOWED_WHY):  # it trains on
                    continue
                if line.went_on_s:
                    return None
                # a launcher may start its ranks again by itself, and when it gives up, its own end says so; what checks
                # found, or wrong numbers, need not keep the job from getting on
                if line.kind and not line.why.startswith((CRASHED_WHY, *RUNS_ON)):
                    verdict = client.incident(line.id)[1]
                    return (line.id, verdict) if verdict is not None else None
        return None

    def test(self, machines: Sequence[str], levels: Sequence[int], budget_s: float, why: str) -> Mapping[str, Any]:
        with CampaignClient(self.server) as client:
            until = time.monotonic() + JOIN_S
            while not _connected(client, machines) and time.monotonic() < until:
                time.sleep(AGAIN_S)
            steps = client.run(
                machines, levels=levels, budget_s=budget_s, why=why, within_s=budget_s + END_S
            )  # fmt: skip
            for step in steps:
                if step.report is not None:
                    return step.report
        raise OurFault("the server ended a campaign without a report", "its log says more", code="no-verdict")

    def restart_dead(self, now: float) -> None:
        pass

    def processes(self) -> Collection[int]:
        return ()


def _connected(client: CampaignClient, machines: Sequence[str]) -> bool:
    return {line.name for line in client.machines() if line.connected}.issuperset(machines)


def newest(watcher: Watcher, job: str) -> tuple[str, Verdict] | None:
    """The newest verdict; None, too, while nobody answers: the job goes on, and is asked after again."""
    try:
        return watcher.verdict(job)
    except HangdogError:
        return None
