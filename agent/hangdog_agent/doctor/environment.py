"""Examines what the kernel and the container around us let through, and names the setting that does not."""

import os
import sys
from pathlib import Path

from hangdog_agent.confinement.capabilities import PTRACE, SYSLOG, RuntimePlace, grant
from hangdog_agent.confinement.confined_children import Child, ChildLimits
from hangdog_agent.confinement.subprocesses import run
from hangdog_agent.doctor_finding import DoctorFinding, Health
from hangdog_agent.procfs import Proc, Status

#: The initial pid namespace has this inode on every Linux (PROC_PID_INIT_INO).
_INITIAL_NAMESPACE = "pid:[4026531836]"
#: NVML starts in about a second on a machine with eight GPUs; on a sick one it may hang for ever.
_NVML_S = 10.0
_NVML = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount(), n.nvmlSystemGetDriverVersion())"
_YAMA = {"0": "off", "1": "only descendants may be read", "2": "only with CAP_SYS_PTRACE", "3": "nobody may be read"}
#: Words kept of a tool's own explanation.
_MOST_WORDS = 120


def yama(proc: Proc, status: Status, refused: bool, where: RuntimePlace) -> DoctorFinding:
    """Yama's limit on reading other processes; `refused` says whether reading one was."""
    name, read = "Yama ptrace_scope", proc.setting("sys/kernel/yama/ptrace_scope")
    if read is None:
        return DoctorFinding(name, Health.OK, "no Yama in this kernel")
    what = f"{read} ({_YAMA.get(read, 'unknown')})"
    if not refused or read == "0" or (read != "3" and PTRACE.held(status)):
        return DoctorFinding(name, Health.OK, what)
    if read == "3":
        fix = "take kernel.yama.ptrace_scope=3 out of /etc/sysctl.d and reboot: no running kernel takes it back"
        return DoctorFinding(name, Health.WARN, what, fix)
    fix = f"sudo sysctl kernel.yama.ptrace_scope=0   # on the machine itself; or {grant([PTRACE], where, _root())}"
    return DoctorFinding(name, Health.WARN, what, fix)


def seccomp(status: Status, refused: bool, where: RuntimePlace) -> DoctorFinding:
    """A filter on system calls, which may forbid ptrace and process_vm_readv."""
    if status.seccomp == 0:
        return DoctorFinding("seccomp", Health.OK, "no filter")
    if not refused:
        return DoctorFinding("seccomp", Health.OK, "a filter is on, and lets capture through")
    what = "a filter is on and may forbid ptrace and process_vm_readv"
    if not PTRACE.held(status):
        fix = f"grant SYS_PTRACE, which the runtimes' default filters follow: {grant([PTRACE], where, _root())}"
        return DoctorFinding("seccomp", Health.WARN, what, fix)
    return DoctorFinding("seccomp", Health.WARN, what, _SECCOMP_OFF[where])


_SECCOMP_OFF = {
    RuntimePlace.KUBERNETES: "securityContext: {seccompProfile: {type: Unconfined}}   # in the agent's container of the manifest",
    RuntimePlace.DOCKER: "docker run --security-opt seccomp=unconfined ...",
    RuntimePlace.UNIT: "SystemCallFilter=@system-service ptrace   # in the unit's [Service]: sudo systemctl edit hangdog-agent",
    RuntimePlace.SHELL: "start the agent outside of the sandbox that filters its system calls",
}


def profile(proc: Proc, status: Status, refused: bool, where: RuntimePlace) -> DoctorFinding | None:
    """AppArmor or SELinux, where one of them is the likely reason of a refusal; None where it is not."""
    label = (proc.setting("self/attr/current") or "").rstrip("\0")
    if not refused or not label or label.startswith("unconfined") or not PTRACE.held(status):
        return None
    selinux = ":" in label
    what = f"this process is confined as {label[:_MOST_WORDS]}, which may forbid it to read others"
    lines = {
        RuntimePlace.KUBERNETES: "seLinuxOptions: {type: spc_t}" if selinux else "appArmorProfile: {type: Unconfined}",
        RuntimePlace.DOCKER: "label=disable" if selinux else "apparmor=unconfined",
    }
    fix = "start the agent unconfined"
    if where is RuntimePlace.KUBERNETES:
        fix = f"securityContext: {{{lines[where]}}}   # in the agent's container of the manifest"
    elif where is RuntimePlace.DOCKER:
        fix = f"docker run --security-opt {lines[where]} ..."
    return DoctorFinding("SELinux" if selinux else "AppArmor", Health.WARN, what, fix)


def namespace(proc: Proc, trainers: bool, where: RuntimePlace) -> DoctorFinding:
    """Whether the machine's processes can be seen at all; `trainers` says whether any was found."""
    try:
        mine = str((proc.root / "self" / "ns" / "pid").readlink())
    except OSError:
        mine = "unknown"
    if mine == _INITIAL_NAMESPACE:
        if proc.stat(1) is None:
            what, fix = "/proc hides the processes of others (hidepid)", "sudo mount -o remount,hidepid=0 /proc"
            return DoctorFinding("pid namespace", Health.WARN, what, fix)
        return DoctorFinding("pid namespace", Health.OK, "the host's: all processes can be seen")
    what = "a container's: trainers outside of it cannot be seen"
    fix = "docker run --pid=host ..."
    if where is RuntimePlace.KUBERNETES:
        fix = "hostPID: true   # in the DaemonSet's pod spec; of a sidecar: shareProcessNamespace: true in the pod's"
    # a sidecar that sees its trainers, or an agent on a machine that is itself a container, has all it needs
    return DoctorFinding("pid namespace", Health.OK if trainers else Health.WARN, what, fix)


def kernel_log(proc: Proc, status: Status, where: RuntimePlace, log: Path = Path("/dev/kmsg")) -> DoctorFinding:
    """Whether the kernel's own lines (Xid, link down, out of memory) can be read; capture does without them."""
    name = "kernel log"
    try:
        os.close(os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        return DoctorFinding(name, Health.OK, "can be read")
    except PermissionError:
        pass
    except OSError as error:
        return DoctorFinding(name, Health.WARN, f"{log}: {error.strerror}", _KMSG_IN.get(where, ""))
    if proc.setting("sys/kernel/dmesg_restrict") == "1" and not SYSLOG.held(status):
        fix = grant([SYSLOG], where, _root())
        if where is RuntimePlace.SHELL:
            fix += "; or sudo sysctl kernel.dmesg_restrict=0"
        return DoctorFinding(
            name, Health.WARN, "not permitted: kernel.dmesg_restrict is 1, CAP_SYSLOG is not held", fix
        )
    what = f"not permitted, though CAP_SYSLOG would allow it: {log} is closed to this user or to this container"
    return DoctorFinding(name, Health.WARN, what, _KMSG_IN.get(where, "start the agent as root"))


#: Mounting the device is not enough: a container's device cgroup must let it through too.
_KMSG_IN = {
    RuntimePlace.KUBERNETES: "securityContext: {privileged: true} and a hostPath volume of /dev/kmsg; capture works without",
    RuntimePlace.DOCKER: "docker run --device /dev/kmsg --cap-add SYSLOG ...",
}


def cpu_activity(proc: Proc) -> DoctorFinding:
    """Whether the kernel counts how threads run: without it only a job's own step lines or heartbeat tell a standstill."""
    name, me = "schedstat", os.getpid()
    counted = proc.schedstat(me, me)
    if counted is None:
        what = "this kernel does not count how threads run: standstills are noticed by step lines and heartbeats only"
        return DoctorFinding(name, Health.WARN, what, "boot a kernel with CONFIG_SCHED_INFO=y (gVisor's has none)")
    if not any(counted):
        what = "the kernel's counters of running threads stand at 0: standstills are noticed by step lines and heartbeats only"
        fix = "sudo sysctl kernel.task_delayacct=1   # on the machine itself; or boot with `delayacct`"
        return DoctorFinding(name, Health.WARN, what, fix)
    return DoctorFinding(name, Health.OK, "the CPU activity of trainers can be read")


def nvml(proc: Proc, where: RuntimePlace, program: str = _NVML) -> DoctorFinding:
    """GPUs are no condition of capture; asked in a process of its own, because a sick driver may never answer."""
    # NVML maps the card's registers: its address space has no bound
    command = (sys.executable, "-I", "-c", program)
    outcome = run(command, _NVML_S, 1 << 16, environ=os.environ, child=Child(ChildLimits(address_bytes=0)))
    if outcome.status == 0:
        count, _, driver = outcome.stdout.decode("utf-8", "replace").strip().partition(" ")
        return DoctorFinding("NVML", Health.OK, f"{count} GPU(s), driver {driver}")
    if outcome.timed_out:
        fix = "look for Xid 119 in the kernel log; a reset of the machine brings the driver back"
        return DoctorFinding("NVML", Health.WARN, f"does not answer within {_NVML_S:g} s: the GPU driver hangs", fix)
    why = f"none: {outcome.stderr.strip().rpartition(chr(10))[2] or outcome.why}"[:_MOST_WORDS]
    if "No module named" in why:
        return DoctorFinding("NVML", Health.WARN, why, "pip install nvidia-ml-py")
    if proc.setting("driver/nvidia/version") is not None:  # also seen from containers: there are GPUs below us
        return DoctorFinding("NVML", Health.WARN, f"{why}; yet an NVIDIA driver is loaded here", _NVML_IN[where])
    return DoctorFinding("NVML", Health.OK, why)


_VISIBLE = "NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility"
_NVML_IN = {
    RuntimePlace.KUBERNETES: f"runtimeClassName: nvidia in the pod spec, and env {_VISIBLE} in the agent's container",
    RuntimePlace.DOCKER: "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=utility ...",
    RuntimePlace.UNIT: "install libnvidia-ml.so.1 of that driver, and keep PrivateDevices= off in the unit",
    RuntimePlace.SHELL: "install libnvidia-ml.so.1 of that driver (Debian: libnvidia-ml1), or reload the driver after its update",
}


def _root() -> bool:
    return os.geteuid() == 0
