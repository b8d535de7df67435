"""Who watches a job and comes to verdicts about it: a server that is there already; or see local.py."""

from collections.abc import Collection
from typing import Protocol

from hangdog_models.errors import HangdogError
from hangdog_models.verdict import Verdict
from hangdog_proto.client import Client
from hangdog_proto.reach import Reach

#: Incidents of one attempt that are looked through: one that stays open is looked into again and again, more and more rarely.
INCIDENTS = 20


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


def newest(watcher: Watcher, job: str) -> tuple[str, Verdict] | None:
    """The newest verdict; None, too, while nobody answers: the job goes on, and is asked after again."""
    try:
        return watcher.verdict(job)
    except HangdogError:
        return None
