"""A trainer's flight record, asked for as the agent does."""

import subprocess

from hangdog_agent.capture.flight_recorder.recorder import RecorderTimeouts, record
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import ProcessRole, RankProcesses, find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_models.reading.collectives.library_counters import flight_record
from hangdog_models.stack import Missing, Reason
from hangdog_proto.codec.collectives import Statement
from support.fakes import targets

TOOLS = Tools(targets.proc, Missing(Reason.TOOL_MISSING, "none needed"), CaptureSettings())
#: Long enough for everything that is played, on a busy machine too.
LONG = RecorderTimeouts(socket_s=5.0, dump_s=8.0, start_s=8.0)
#: For what never comes.
SHORT = RecorderTimeouts(socket_s=0.3, dump_s=0.5, start_s=8.0)


def trainer(process: "subprocess.Popen[bytes]") -> RankProcesses:
    """The trainer as discovery finds it, environment included."""
    return by_pid(process.pid)


def by_pid(pid: int) -> RankProcesses:
    (found,) = [m for m in find(ProcessTable(targets.proc).take()) if m.process.pid == pid]
    assert found.kind is ProcessRole.TRAINER
    return found


def ask(process: "subprocess.Popen[bytes]", patience: RecorderTimeouts = LONG) -> Statement:
    return record(trainer(process), TOOLS, patience)


def enqueued(told: Statement) -> dict[str, int]:
    assert told.missing is None, told.missing
    assert told.rank is not None
    return flight_record(told.data, told.rank).enqueued


def words(told: Statement) -> tuple[Reason, str]:
    assert told.missing is not None and not told.data
    return told.missing.reason, told.missing.message
