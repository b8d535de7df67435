"""Finds what NCCL Inspector writes for a trainer, by what the trainer has open, and says with a capture what it completed.

Inspector keeps its file open, so no folder is searched and no name is guessed: `<host>-pid<PID>.log` with JSON lines, or
`nccl_inspector_metrics_<GPU>.prom`. An operation that hangs is in neither.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from hangdog_agent.capture import inspector_process
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.confinement import confined_children
from hangdog_agent.confinement.subprocesses import run
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_agent.discovery.environ_names import INSPECTOR, INSPECTOR_INTERVAL
from hangdog_agent.procfs import Proc
from hangdog_models.stack import Missing, Reason
from hangdog_proto.codec.collectives import Statement, StatementKind

#: Descriptors looked through: their number is the trainer's choice, and each costs 2 µs.
_MOST_DESCRIPTORS = 4096
#: Starting Python takes 20 ms, on an overloaded machine a second; the end of a file a millisecond.
_WITHIN_S = 2.0
_PROMETHEUS = "nccl_inspector_metrics_", ".prom"


@dataclass(frozen=True, slots=True)
class OpenDump:
    """A file that Inspector writes: the trainer's `descriptor` of it, its name, and whether it is Prometheus text."""

    descriptor: int
    name: str
    prometheus: bool


def interval_s(member: RankProcesses) -> float | None:
    """How often a trainer's Inspector writes, in seconds; None where it does not while the job runs."""
    environ = member.process.environ or {}
    try:
        enabled, micros = int(environ.get(INSPECTOR, "0")), int(environ.get(INSPECTOR_INTERVAL, "-1"))
    except ValueError:
        return None
    return micros / 1e6 if enabled and micros >= 0 else None


def find(member: RankProcesses, proc: Proc) -> OpenDump | None:
    """The file that a trainer's Inspector has open; None where there is none. No file is touched for that."""
    pid = member.process.pid
    if interval_s(member) is None or (status := proc.status(pid)) is None:
        return None
    folder, ending = proc.root / str(pid) / "fd", f"-pid{status.pids[-1] if status.pids else pid}.log"
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, _MOST_DESCRIPTORS):
            with suppress(OSError):
                name = os.readlink(entry.path).rpartition("/")[2]
                prometheus = name.startswith(_PROMETHEUS[0]) and name.endswith(_PROMETHEUS[1])
                if prometheus or name.endswith(ending):
                    return OpenDump(int(entry.name), name, prometheus)
    return None


def completed(member: RankProcesses, tools: Tools) -> Statement | None:
    """The end of a trainer's dump as Inspector wrote it; None where it writes none, or Prometheus text, which has no operations.

    Its age is that of Inspector's last look at what completed: nothing else is written while nothing completes.
    """
    if not tools.settings.inspector or (dump := find(member, tools.proc)) is None or dump.prometheus:
        return None
    order = {
        "proc": os.fspath(tools.proc.root),
        "pid": member.process.pid,
        "started": member.process.started,
        "descriptor": dump.descriptor,
        "name": dump.name,
        "cpu_s": int(_WITHIN_S) + 1,
    }
    command = confined_children.reader("hangdog_agent.capture.inspector_process", json.dumps(order))
    outcome = run(
        command, _WITHIN_S, inspector_process.MOST_BYTES, environ=confined_children.environment(), stop=tools.stop,
        child=confined_children.READER,
    )  # fmt: skip
    if outcome.timed_out:
        missing = Missing(Reason.TIMED_OUT, "the file system of what NCCL Inspector writes did not answer in time")
        return Statement(StatementKind.INSPECTOR, member.rank, missing=missing)
    if outcome.status != 0:
        words = (outcome.why or outcome.stderr.strip() or "no words").splitlines()[-1]
        return Statement(StatementKind.INSPECTOR, member.rank, missing=Missing(Reason.TOOL_FAILED, words))
    if not outcome.stdout:
        return None
    return Statement(StatementKind.INSPECTOR, member.rank, outcome.stdout, age_s=round(interval_s(member) or 0.0))
