"""A supervisor whose verdicts are played: `python -m recovery.played_watcher STATE VERDICTS PROGRAM...`.

VERDICTS is JSON: for each attempt of the job the kind of its verdict and the machines to evict, or null for none. A fake
stands here for server and agents only, behind the same Watcher; processes, history and steps are real. It runs in a process
of its own, for a supervisor ends all descendants that it has.
"""

import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from hangdog.supervising.history_file import HistoryFile
from hangdog.supervising.logs import JobLog
from hangdog.supervising.pending_changes import PendingChanges
from hangdog.supervising.run_order import RunOrder
from hangdog.supervising.supervisor import Supervisor
from hangdog_models.errors import ServerUnreachable
from hangdog_models.recovery.recovery_ladder import RecoveryResources
from hangdog_models.verdict import Coverage, Eviction, EvidenceReport, Kind, Verdict, VerdictReason
from hangdog_proto.client.server_address import ServerAddress


class PlayedWatcher:
    """Answers the verdict of an attempt at the second question; at the first nobody is there."""

    def __init__(self, verdicts: list[tuple[str, list[str]] | None]) -> None:
        self._verdicts = verdicts
        self._asked: set[str] = set()

    @property
    def server(self) -> ServerAddress:
        return ServerAddress("127.0.0.1:1")

    def verdict(self, job: str) -> tuple[str, Verdict] | None:
        if job not in self._asked:
            self._asked.add(job)
            raise ServerUnreachable("the server is away for a moment")
        played = self._verdicts[int(job.rpartition("-")[2]) - 1]
        if played is None:
            return None
        kind, machines = played
        evict = Eviction(tuple(machines), 0.97 if machines else 0.0)
        nothing, because = Coverage(2, 2, (), {}), (VerdictReason("waited-for", f"played {kind}"),)
        return "1234", Verdict(
            job, 2, Kind(kind), 0.97, because, (), evict, (), (), nothing, EvidenceReport(), "played"
        )  # fmt: skip

    def test(self, machines: Sequence[str], levels: Sequence[int], budget_s: float, why: str) -> Mapping[str, Any]:
        raise ServerUnreachable("nobody tests here")

    def restart_dead(self, now: float) -> None:
        pass

    def processes(self) -> Collection[int]:
        return ()


def main() -> None:
    state, verdicts, *program = sys.argv[1:]
    order = RunOrder(tuple(program), ("a", "b"), ("c",), "job", Path(state), grace_s=1.0, patience_s=0.5)
    with HistoryFile(Path(state) / "history.jsonl") as kept:
        supervisor = Supervisor(
            order,
            kept,
            PlayedWatcher(json.loads(verdicts)),
            print,
            lambda _: None,
            time.time,  # noqa: TID251 - as the command hands it down
            RecoveryResources,
            PendingChanges(None),
            [JobLog(None), JobLog(None)],
        )
        sys.exit(0 if supervisor.run() else 1)


if __name__ == "__main__":
    main()
