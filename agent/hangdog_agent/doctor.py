"""Examines whether processes can be captured here, by capturing some, and says which setting to change if not."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hangdog_agent import probe
from hangdog_agent.capture import pyspy
from hangdog_agent.capture.look import Tools, look
from hangdog_agent.capture.series import Series
from hangdog_agent.census import Census
from hangdog_agent.discover import Process
from hangdog_agent.killable import run
from hangdog_agent.procfs import Proc, Status
from hangdog_agent.settings import CaptureSettings, LinkSettings
from hangdog_agent.watch import Watch, jobs
from hangdog_models.ranks import format_ranks
from hangdog_models.stack import Missing, ProcessTrace, Reason

#: The py-spy our rules for frame names were written against.
PINNED = "0.4.3"
#: CAP_SYS_PTRACE of capabilities(7), as a bit of CapEff.
_CAP_SYS_PTRACE = 1 << 19
#: The initial pid namespace has this inode on every Linux (PROC_PID_INIT_INO).
_INITIAL_NAMESPACE = "pid:[4026531836]"
#: NVML starts in about a second on a machine with eight GPUs; on a sick one it may hang for ever.
_NVML_S = 10.0
_NVML = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount(), n.nvmlSystemGetDriverVersion())"

DOCKER = "docker run --cap-add SYS_PTRACE ..."
KUBERNETES = 'securityContext: {capabilities: {add: ["SYS_PTRACE"]}}   # in the agent\'s container of the manifest'


class Health(StrEnum):
    """How a finding is to be taken: `warn` limits what can be seen, `fail` means that capture does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing examined: its name, how it stands, what was found, and what to change (empty when nothing)."""

    name: str
    health: Health
    what: str
    fix: str = ""


def examine(proc: Proc | None = None, tool: pyspy.PySpy | Missing | None = None) -> tuple[Finding, ...]:
    """Examines this machine as the user we are; takes some seconds at most, and changes nothing.

    `proc` and `tool` stand for the machine's own process table and py-spy unless given.
    """
    if not sys.platform.startswith("linux"):
        return (Finding("system", Health.FAIL, f"{sys.platform} has no /proc", "run the agent on Linux"),)
    proc = proc or Proc()
    tools = Tools(proc, tool or pyspy.load(), CaptureSettings())
    status = proc.status(os.getpid()) or Status()
    stranger = _capture("another's process", probe.stranger, tools, status)
    return (
        _tool(tools.pyspy),
        _capture("own child", probe.descendant, tools, status),
        stranger,
        _user(status),
        _capability(status),
        _yama(proc, stranger),
        _seccomp(status, stranger),
        _namespace(proc),
        *_trainers(tools, status),
        _nvml(),
    )


def works(findings: Sequence[Finding]) -> bool:
    """Whether capture works here."""
    return all(finding.health is not Health.FAIL for finding in findings)


def _tool(tool: pyspy.PySpy | Missing) -> Finding:
    if isinstance(tool, Missing):
        return Finding("py-spy", Health.FAIL, tool.words, f"pip install --force-reinstall py-spy=={PINNED}")
    if tool.version != PINNED:
        what = f"{tool.version}; frames are named differently than in {PINNED}, which the rules are made for"
        return Finding("py-spy", Health.WARN, what, f"pip install py-spy=={PINNED}")
    return Finding("py-spy", Health.OK, tool.version)


def _capture(
    name: str, start: Callable[[Proc], AbstractContextManager[Process | None]], tools: Tools, status: Status
) -> Finding:
    """Captures a process started for this, for real."""
    with start(tools.proc) as process:
        if process is None:
            return Finding(name, Health.FAIL, "a small Python process could not be started to try on")
        seen = look(process, tools, time.monotonic() + tools.settings.look_s)
    if seen.threads and seen.missing is None:
        return Finding(name, Health.OK, "captured")
    assert seen.missing is not None
    return Finding(name, Health.FAIL, _brief(seen.missing), _permit(status) if _refused(seen.missing) else "")


def _user(status: Status) -> Finding:
    uid = os.geteuid()
    return Finding("user", Health.OK, "root" if uid == 0 else f"uid {uid}: sees the processes of this user")


def _capability(status: Status) -> Finding:
    if status.capabilities & _CAP_SYS_PTRACE:
        return Finding("CAP_SYS_PTRACE", Health.OK, "held")
    what = "not held: only processes of the same user that hold no more rights than this one can be read"
    return Finding("CAP_SYS_PTRACE", Health.WARN, what, _permit(status))


def _yama(proc: Proc, stranger: Finding) -> Finding:
    read = proc.setting("sys/kernel/yama/ptrace_scope")
    if read is None:
        return Finding("Yama ptrace_scope", Health.OK, "no Yama in this kernel")
    meaning = {
        "0": "off",
        "1": "only descendants may be read",
        "2": "only with CAP_SYS_PTRACE",
        "3": "nobody may be read",
    }
    what = f"{read} ({meaning.get(read, 'unknown')})"
    if stranger.health is Health.OK or read == "0":
        return Finding("Yama ptrace_scope", Health.OK, what)
    fix = "reboot without kernel.yama.ptrace_scope=3" if read == "3" else "sudo sysctl kernel.yama.ptrace_scope=0"
    return Finding("Yama ptrace_scope", Health.WARN, what, fix)


def _seccomp(status: Status, stranger: Finding) -> Finding:
    if status.seccomp == 0:
        return Finding("seccomp", Health.OK, "no filter")
    if stranger.health is Health.OK:
        return Finding("seccomp", Health.OK, "a filter is on, and lets capture through")
    what = "a filter is on and may forbid ptrace and process_vm_readv"
    return Finding("seccomp", Health.WARN, what, f"grant SYS_PTRACE, which Docker's filter follows: {DOCKER}")


def _namespace(proc: Proc) -> Finding:
    try:
        mine = str((proc.root / "self" / "ns" / "pid").readlink())
    except OSError:
        mine = "unknown"
    if mine == _INITIAL_NAMESPACE:
        return Finding("pid namespace", Health.OK, "the host's: all processes can be seen")
    what = "a container's: trainers outside of it cannot be seen"
    return Finding(
        "pid namespace", Health.OK, what, "to see them too: docker run --pid=host, or hostPID: true in the manifest"
    )


def _trainers(tools: Tools, status: Status) -> list[Finding]:
    census = Census(tools.proc)
    watch = Watch(census, None, (os.getpid(),), LinkSettings().forget_s)
    here = jobs(watch.see())
    findings = [_job(job.name, Series(job.name, watch.see, tools).look(), status) for job in here]
    hidden = census.unreadable()
    if hidden:
        what = f"{hidden} Python processes hide their environment from this user: a trainer may be among them"
        findings.append(Finding("other users", Health.WARN, what, _permit(status)))
    return findings or [Finding("training processes", Health.OK, "none runs here now")]


def _job(name: str, traces: Sequence[ProcessTrace], status: Status) -> Finding:
    failed = [
        trace
        for trace in traces
        if not trace.threads and trace.missing and trace.missing.reason is not Reason.NOT_PYTHON
    ]
    what = f"{len(traces)} processes of rank {format_ranks({trace.rank for trace in traces})}"
    if not failed:
        return Finding(f"job {name}", Health.OK, f"{what}, all captured")
    first = failed[0]
    what += f", {len(failed)} not captured; {first.role} of rank {first.rank}: {_brief(first.missing)}"
    refused = [trace for trace in failed if trace.missing is not None and _refused(trace.missing)]
    return Finding(f"job {name}", Health.FAIL if refused else Health.WARN, what, _permit(status) if refused else "")


def _nvml() -> Finding:
    """GPUs are no condition of capture; asked in a process of its own, because a sick driver may never answer."""
    outcome = run((sys.executable, "-I", "-c", _NVML), _NVML_S, 1 << 16, environ=os.environ)
    if outcome.status == 0:
        count, _, driver = outcome.stdout.decode("utf-8", "replace").strip().partition(" ")
        return Finding("NVML", Health.OK, f"{count} GPU(s), driver {driver}")
    if outcome.timed_out:
        return Finding("NVML", Health.WARN, f"does not answer within {_NVML_S:g} s: the GPU driver hangs")
    return Finding("NVML", Health.OK, f"none: {outcome.stderr.strip().rpartition(chr(10))[2] or outcome.why}"[:120])


def _brief(missing: Missing | None) -> str:
    """Without the advice after the cause: the line to change stands below."""
    return str(missing).partition(";")[0]


def _refused(missing: Missing) -> bool:
    return missing.reason is Reason.NOT_PERMITTED


def _permit(status: Status) -> str:
    """The line to change so that this process may read others, for where it runs."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return KUBERNETES
    if any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")):
        return DOCKER if os.geteuid() == 0 else f"{DOCKER} --user root"
    if os.geteuid() != 0:
        return f"sudo {sys.executable} -m hangdog_agent.main ...   # the agent as root"
    return f"start the agent from a root with all rights, in a container with SYS_PTRACE: {DOCKER}"
