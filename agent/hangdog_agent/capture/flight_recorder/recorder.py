"""Has a trainer's PyTorch tell its flight record: through its worker server, or its FIFO and the dump that follows.

Where it answers neither, the dump counts that it wrote by itself (kept_dump.py). The record stays bytes here; only the server
reads it, and never executes it.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_agent.capture.flight_recorder.kept_dump import THERE
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.confinement import confined_children
from hangdog_agent.confinement.subprocesses import ProcessOutcome, run
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_models.stack import Missing, Reason
from hangdog_proto.codec.collectives import MOST_BYTES, Statement, StatementKind

#: PyTorch's names for the same, the first one set counts: newer ones first, as PyTorch does where it knows both.
_PIPES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
_DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_SOCKET = "TORCH_WORKER_SERVER_SOCKET"
#: Where PyTorch before 2.6 writes when nobody says where.
_OLD_DUMP = "/tmp/nccl_trace_rank_"
#: Bytes of the line that goes before a record: how old it is.
_AGE = 32


@dataclass(frozen=True, slots=True)
class RecorderTimeouts:
    """How long each door is waited at. Seconds."""

    #: A worker server answers within 5 ms, with the GIL stuck too; a stopped process never.
    socket_s: float = 1.0
    #: PyTorch looks at its FIFO once a second, and finds the names of 2,000 operations' frames in another.
    dump_s: float = 4.0
    #: Unread for twice as long as PyTorch takes to look at its FIFO, nobody reads it: after a dump of its own it never does.
    read_s: float = 2.0
    #: Starting Python takes 20 ms, on an overloaded machine a second.
    start_s: float = 2.0

    @property
    def whole_s(self) -> float:
        """Both doors, and two questions at the first."""
        return self.start_s + 2 * self.socket_s + self.dump_s


def record(member: RankProcesses, tools: Tools, patience: RecorderTimeouts = RecorderTimeouts()) -> Statement:
    """The flight record of one trainer, or why there is none; answers within `patience.whole_s` and a moment."""
    reported = _asked(member, tools, patience)
    if isinstance(reported, Missing):
        return Statement(StatementKind.RECORD, member.rank, missing=reported)
    age_s, data = reported
    return Statement(StatementKind.RECORD, member.rank, data, age_s=age_s)


def _asked(member: RankProcesses, tools: Tools, patience: RecorderTimeouts) -> tuple[int, bytes] | Missing:
    pid, environ = member.process.pid, member.process.environ or {}
    socket = environ.get(_SOCKET, "")
    pipe = next((environ[name] for name in _PIPES if environ.get(name)), "")
    by_socket, by_file = bool(tools.settings.recorder_socket), bool(tools.settings.recorder_pipe)
    if not (by_socket or by_file):
        return Missing(
            Reason.NO_EVIDENCE, "flight recorders are turned off on this machine (recorder_socket=0, recorder_pipe=0)"
        )
    socket, pipe, (stated, dumps) = socket if by_socket else "", pipe if by_file else "", _prefixes(environ)
    silent = Missing(Reason.NO_EVIDENCE, f"neither {_SOCKET} nor {_PIPES[1]} is set in its environment")
    if not (socket or by_file):
        return silent
    asked = bool(socket or pipe)
    stat = tools.proc.stat(pid)
    if stat is None or stat.started != member.process.started or stat.state in "ZX":
        return Missing(Reason.EXITED, "its process has ended") if asked else silent
    if stat.state in "Tt":
        return Missing(Reason.STOPPED, "its process is stopped and can tell nothing") if asked else silent
    order = {
        "proc": os.fspath(tools.proc.root),
        "pid": pid,
        "started": member.process.started,
        "rank": member.rank,
        "socket": socket,
        "pipe": pipe,
        "dumps": dumps if by_file else [],
        "stated": stated,
        "most": MOST_BYTES,
        "socket_s": patience.socket_s,
        "dump_s": patience.dump_s,
        "read_s": patience.read_s,
        "cpu_s": int(patience.whole_s) + 2,
    }
    command = confined_children.reader("hangdog_agent.capture.flight_recorder.recorder_process", json.dumps(order))
    environ = confined_children.environment()
    # nobody is waited for who was never to be asked: the place of dumps that no job named may lie on what hangs
    within_s = patience.whole_s if asked else patience.start_s + patience.socket_s
    outcome = run(
        command, within_s, MOST_BYTES + _AGE, environ=environ, stop=tools.stop, child=confined_children.READER
    )
    age, _, data = outcome.stdout.partition(b"\n")
    if outcome.status == 0 and data:
        return int(age), data
    return _explain(outcome) if asked or THERE in outcome.stderr else silent


def _explain(outcome: ProcessOutcome) -> Missing:
    if outcome.timed_out:
        return Missing(Reason.TIMED_OUT, "neither its socket's nor its dump's file system answered in time")
    words = (outcome.why or outcome.stderr.strip() or "no words").splitlines()[-1]
    if "CAP_SETUID" in words:
        return Missing(Reason.NOT_PERMITTED, words)
    late = "within" in words or "incomplete" in words
    return Missing(Reason.TIMED_OUT if late else Reason.TOOL_FAILED, words)


def _prefixes(environ: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Where the dump may appear: where the environment says (True), else in the places of the versions there are."""
    stated = [environ[name] for name in _DUMPS if environ.get(name)]
    if stated:
        return True, stated
    home = environ.get("HOME") or "/tmp"
    cache = environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
    return False, [f"{cache}/torch/comm_lib_trace_rank_", f"{home}/.cache/torch/nccl_trace_rank_", _OLD_DUMP]
