"""Says how far the NCCL operations of a trainer have come, where it keeps the ring of hangdog's profiler plug-in."""

import json
import os
import time
from typing import Any

from hangdog_agent.capture import profiler_layout, profiler_ring, ring_process
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.confinement import confined_children
from hangdog_agent.confinement.subprocesses import ProcessOutcome, run
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_agent.discovery.environ_names import RING_FOLDER
from hangdog_agent.procfs import Proc
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives import progress_json
from hangdog_models.stack import Missing, Reason
from hangdog_proto.codec.collectives import Statement, StatementKind

#: Where rings lie unless a trainer's environment says otherwise.
_SHARED_MEMORY = "/dev/shm"
#: Starting Python takes 20 ms, on an overloaded machine a second; the copy itself a few milliseconds.
_WITHIN_S = 2.0


def progress(member: RankProcesses, tools: Tools) -> Statement | None:
    """What the ring of one trainer shows; None where it keeps none, as most do.

    The trainer is neither asked nor stopped: one that is stopped, or whose threads all hang, shows as much. So does one that
    is dead, as long as whoever started it is there, and of the same user.
    """
    if not tools.settings.profiler_ring or (order := _order(member, tools.proc)) is None:
        return None
    command = confined_children.reader("hangdog_agent.capture.ring_process", json.dumps(order))
    began = time.monotonic_ns()
    outcome = run(
        command, _WITHIN_S, profiler_layout.SIZE, environ=confined_children.environment(), stop=tools.stop,
        child=confined_children.READER,
    )  # fmt: skip
    if outcome.status == ring_process.NONE:
        return None
    if outcome.status != 0 or not outcome.stdout:
        return Statement(StatementKind.PROGRESS, member.rank, missing=_explain(outcome))
    return read(member.rank, outcome.stdout, began)


def _order(member: RankProcesses, proc: Proc) -> dict[str, Any] | None:
    """Through whose root the ring is reached, and what it is called; None where nothing leads to it."""
    process = member.process
    through, stat = process.pid, proc.stat(process.pid)
    dead = stat is None or stat.started != process.started or stat.state in "ZX"
    if dead:
        through, stat = process.parent, proc.stat(process.parent)
    status = proc.status(through)
    if stat is None or status is None or (dead and status.uid != process.owner.uid):
        return None
    folder = (process.environ or {}).get(RING_FOLDER, "")
    if not folder and _nobody_keeps_any(proc, through, status.uid):
        return None
    return {
        "proc": os.fspath(proc.root),
        "pid": through,
        "started": stat.started,
        "folder": folder,
        # a ring is called after its process as that one's container counts, which a dead one does not tell any more
        "name": f"{'*' if dead else status.pids[-1] if status.pids else process.pid}-{process.started}",
        "cpu_s": int(_WITHIN_S) + 1,
    }


def place(member: RankProcesses, proc: Proc) -> str:
    """Where the ring of a trainer that lives lies, as it sees it; empty where it surely keeps none."""
    process = member.process
    status = proc.status(process.pid)
    if status is None:
        return ""
    folder = (process.environ or {}).get(RING_FOLDER, "")
    if not folder and _nobody_keeps_any(proc, process.pid, status.uid):
        return ""
    return f"{folder or f'{_SHARED_MEMORY}/hangdog-{status.uid}'}/{status.pids[-1] if status.pids else process.pid}-{process.started}"


def _nobody_keeps_any(proc: Proc, pid: int, uid: int) -> bool:
    """Whether a user keeps no ring in the usual place, where that can be seen without a child.

    That is where the process sees this machine's own files, whose mounts are root's: a look at its own might never end.
    """
    try:
        own, theirs = (os.readlink(proc.root / who / "ns/mnt") for who in ("self", str(pid)))
        if own != theirs or os.readlink(proc.root / str(pid) / "root") != "/":
            return False
    except OSError:
        return False
    return not os.path.lexists(f"{_SHARED_MEMORY}/hangdog-{uid}")


def read(rank: Rank, ring: bytes, now_ns: int) -> Statement:
    """A copy of a ring as it travels."""
    try:
        found = profiler_ring.parse(lambda at, size: ring[at : at + size], now_ns)
    except UnreadableEvidence as error:
        return Statement(StatementKind.PROGRESS, rank, missing=Missing(Reason.TOOL_FAILED, str(error)))
    document = json.dumps(progress_json.written(found), separators=(",", ":"))
    return Statement(StatementKind.PROGRESS, rank, document.encode())


def _explain(outcome: ProcessOutcome) -> Missing:
    if outcome.timed_out:
        return Missing(Reason.TIMED_OUT, "the file system of its ring did not answer in time")
    words = (outcome.why or outcome.stderr.strip() or "no words").splitlines()[-1]
    return Missing(Reason.NOT_PERMITTED if "CAP_SETUID" in words else Reason.TOOL_FAILED, words)
