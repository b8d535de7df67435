"""Examines whether processes can be captured here, by capturing some, and says which setting to change if not.

`python -m hangdog_agent.doctor.doctor` prints it where there is no `hangdog` command: in the agent's image.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hangdog_agent.capture import pyspy
from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools, look
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.confinement.capabilities import PTRACE, READ_SEARCH, READS, grant, lacking, place
from hangdog_agent.connection import own_certificate
from hangdog_agent.connection.certificate_renewal import NAME
from hangdog_agent.connection.settings import LinkSettings
from hangdog_agent.discovery.discover import Process
from hangdog_agent.discovery.owners import container
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch, jobs
from hangdog_agent.doctor import capture_probe, environment
from hangdog_agent.doctor_finding import DoctorFinding, Health
from hangdog_agent.procfs import Proc, Status
from hangdog_models.counts import counted
from hangdog_models.ranks import format_ranks
from hangdog_models.stack import Missing, ProcessTrace, Reason

__all__ = ["DoctorFinding", "Health", "examine", "works"]

#: The py-spy our rules for frame names were written against.
PINNED = "0.4.3"
#: Containers named of one job: a pod holds the ranks of one machine, seldom more than one pod of a job shares it.
_MOST_CONTAINERS = 2


def examine(proc: Proc | None = None, tool: pyspy.PySpy | Missing | None = None) -> tuple[DoctorFinding, ...]:
    """Examines this machine as the user we are; takes some seconds at most, and changes nothing.

    `proc` and `tool` stand for the machine's own process table and py-spy unless given.
    """
    if not sys.platform.startswith("linux"):
        return (DoctorFinding("system", Health.FAIL, f"{sys.platform} has no /proc", "run the agent on Linux"),)
    proc, where = proc or Proc(), place()
    tools = Tools(proc, tool or pyspy.load(), CaptureSettings())
    status = proc.status(os.getpid()) or Status()
    own = _capture("own child", capture_probe.descendant, tools, status)
    stranger = _capture("another's process", capture_probe.stranger, tools, status)
    refused = stranger.health is Health.FAIL and str(Reason.NOT_PERMITTED) in stranger.what
    trainers = _trainers(tools, status)
    profile = environment.profile(proc, status, refused, where)
    return (
        _tool(tools.pyspy, proc),
        own,
        stranger,
        _user(),
        *_capabilities(status),
        environment.yama(proc, status, refused, where),
        environment.seccomp(status, refused, where),
        *([profile] if profile else []),
        environment.namespace(proc, any(finding.name.startswith("job ") for finding in trainers), where),
        *trainers,
        environment.cpu_activity(proc),
        environment.kernel_log(proc, status, where),
        environment.nvml(proc, where),
        *_certificate(os.environ.get("HANGDOG_TLS", "")),
    )


def works(findings: Sequence[DoctorFinding]) -> bool:
    """Whether capture works here."""
    return all(finding.health is not Health.FAIL for finding in findings)


def main() -> None:
    """Prints the findings as plain lines; ends with 0 when capture works here, with 1 when it does not."""
    findings = examine()
    for finding in findings:
        print(f"{finding.health:5} {finding.name:20} {finding.what}")
        if finding.fix:
            print(f"{'':26} -> {finding.fix}")
    print("capture works here" if works(findings) else "capture does not work here: change what -> says")
    sys.exit(0 if works(findings) else 1)


def _certificate(folder: str) -> list[DoctorFinding]:
    """How long the certificate lasts that an agent with this environment shows."""
    if not folder:
        return []
    state = os.environ.get("STATE_DIRECTORY", "").partition(":")[0] or folder
    return [own_certificate.examined(Path(folder), Path(state) / NAME, time.time())]  # noqa: TID251  # TLS goes by it


def _tool(tool: pyspy.PySpy | Missing, proc: Proc) -> DoctorFinding:
    if isinstance(tool, Missing):
        fix = f"pip install --force-reinstall py-spy=={PINNED}"
        if (
            "Permission denied" in tool.message
        ):  # the binary is there, and neither its file nor a copy in memory may run
            noexec = proc.setting("sys/vm/memfd_noexec") in ("1", "2")
            fix = "mount the file system it is installed on without noexec"
            fix += ", or sudo sysctl vm.memfd_noexec=0" if noexec else ", and make the file executable"
        return DoctorFinding("py-spy", Health.FAIL, tool.message, fix)
    if tool.version != PINNED:
        what = f"{tool.version}; frames are named differently than in {PINNED}, which the rules are made for"
        return DoctorFinding("py-spy", Health.WARN, what, f"pip install py-spy=={PINNED}")
    return DoctorFinding("py-spy", Health.OK, tool.version)


def _capture(
    name: str, start: Callable[[Proc], AbstractContextManager[Process | None]], tools: Tools, status: Status
) -> DoctorFinding:
    """Captures a process started for this, for real."""
    with start(tools.proc) as process:
        if process is None:
            return DoctorFinding(name, Health.FAIL, "a small Python process could not be started to try on")
        seen = look(process, tools, time.monotonic() + tools.settings.look_s)
    if seen.threads and seen.missing is None:
        return DoctorFinding(name, Health.OK, "captured")
    assert seen.missing is not None
    return DoctorFinding(name, Health.FAIL, _brief(seen.missing), _permit(status) if _refused(seen.missing) else "")


def _user() -> DoctorFinding:
    uid = os.geteuid()
    return DoctorFinding("user", Health.OK, "root" if uid == 0 else f"uid {uid}: sees the processes of this user")


def _capabilities(status: Status) -> list[DoctorFinding]:
    """What is held of all that the agent uses; the kernel log has a finding of its own."""
    found = []
    root = os.geteuid() == 0
    short = [capability for capability in lacking(status) if capability is not PTRACE]
    for capability in READS:
        name = f"CAP_{capability.name}"
        if capability not in lacking(status):
            if capability in (PTRACE, READ_SEARCH):
                found.append(DoctorFinding(name, Health.OK, "held"))
        elif capability is PTRACE:
            what = "not held: only processes of the same user that hold no more rights than this one can be read"
            found.append(DoctorFinding(name, Health.WARN, what, grant(lacking(status), place(), root)))
        elif capability is READ_SEARCH and root:
            what = "not held: trainers of other users cannot be found, for their environment cannot be opened"
            found.append(DoctorFinding(name, Health.WARN, what, grant([READ_SEARCH], place(), root=True)))
        elif root:
            what = "not held: trainers are not read, for that must not be done with more than their user's rights"
            found.append(DoctorFinding(name, Health.FAIL, what, grant(short, place(), root=True)))
    return found


def _trainers(tools: Tools, status: Status) -> list[DoctorFinding]:
    process_table = ProcessTable(tools.proc)
    watch = Watch(process_table, None, (os.getpid(),), LinkSettings().forget_s)
    here = jobs(watch.see())
    findings = [
        _job(job.name, CaptureSeries(job.name, watch.see, tools, owner=job.owner).look(), tools.proc, status)
        for job in here
    ]
    hidden = process_table.unreadable()
    if hidden:
        what = f"{hidden} Python processes hide their environment from this user: a trainer may be among them"
        # a user sees the own jobs, and may leave it at that; an agent that runs as root is there to see all
        health = Health.FAIL if os.geteuid() == 0 else Health.WARN
        findings.append(DoctorFinding("other users", health, what, _permit(status)))
    return findings or [DoctorFinding("training processes", Health.OK, "none runs here now")]


def _job(name: str, traces: Sequence[ProcessTrace], proc: Proc, status: Status) -> DoctorFinding:
    if not traces:
        return DoctorFinding(f"job {name}", Health.OK, "ended before it was looked at")
    failed = [
        trace
        for trace in traces
        if not trace.threads and trace.missing and trace.missing.reason is not Reason.NOT_PYTHON
    ]
    ranks = {trace.rank for trace in traces}
    of = f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"
    what = f"{counted(len(traces), 'process', 'processes')} of {of}"
    homes = sorted({home for trace in traces if trace.pid and (home := container(proc, trace.pid))})
    if homes:
        more = f" and {len(homes) - _MOST_CONTAINERS} more" if len(homes) > _MOST_CONTAINERS else ""
        what += f" in {', '.join(homes[:_MOST_CONTAINERS])}{more}"
    if not failed:
        return DoctorFinding(f"job {name}", Health.OK, f"{what}, all captured")
    first = failed[0]
    what += f", {len(failed)} not captured; {first.role} of rank {first.rank}: {_brief(first.missing)}"
    refused = [trace for trace in failed if trace.missing is not None and _refused(trace.missing)]
    return DoctorFinding(
        f"job {name}", Health.FAIL if refused else Health.WARN, what, _permit(status) if refused else ""
    )


def _brief(missing: Missing | None) -> str:
    """Without the advice after the cause: the line to change stands below."""
    return str(missing).partition(";")[0]


def _refused(missing: Missing) -> bool:
    return missing.reason is Reason.NOT_PERMITTED


def _permit(status: Status) -> str:
    """The line to change so that this process may read others, for where it runs."""
    return grant(lacking(status), place(), os.geteuid() == 0)
