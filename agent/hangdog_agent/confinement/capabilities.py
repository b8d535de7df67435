"""Which capabilities the agent uses, and the line that grants those it lacks, for where it runs."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hangdog_agent.procfs import Status


@dataclass(frozen=True, slots=True)
class Capability:
    """A capability of capabilities(7): its name without CAP_, its bit in CapEff, and what it is used for."""

    name: str
    bit: int
    use: str

    def held(self, status: Status) -> bool:
        """Whether a process with this status has it."""
        return bool(status.capabilities >> self.bit & 1)


PTRACE = Capability("SYS_PTRACE", 19, "reads memory and state of other users' processes")
READ_SEARCH = Capability(
    "DAC_READ_SEARCH", 2, "reads their environment and what they have open, which /proc shows to them only"
)
SETUID = Capability("SETUID", 7, "takes the user of a trainer before anything that the trainer names is opened")
SETGID = Capability("SETGID", 6, "takes the groups of a trainer before anything that the trainer names is opened")
SETPCAP = Capability("SETPCAP", 8, "takes these capabilities away from what it starts")
SYSLOG = Capability("SYSLOG", 34, "reads the kernel log where kernel.dmesg_restrict is 1")
#: What it needs to read trainers, and no more of their files than they could themselves.
READS = (PTRACE, READ_SEARCH, SETUID, SETGID, SETPCAP)
#: All the agent ever uses as root; whoever starts it may drop the others.
CAPABILITIES = (*READS, SYSLOG)
#: Kept where it is held and `ras_networks=1`.
SYS_ADMIN = Capability("SYS_ADMIN", 21, "enters the network of a container to ask NCCL's RAS there")


class RuntimePlace(StrEnum):
    """Who started us, and so where the line to change stands."""

    SHELL = "shell"
    UNIT = "systemd unit"
    DOCKER = "Docker"
    KUBERNETES = "Kubernetes"


def place() -> RuntimePlace:
    """Where this process runs, as far as it can tell."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return RuntimePlace.KUBERNETES
    if any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")):
        return RuntimePlace.DOCKER
    # a shell in a graphical session inherits INVOCATION_ID, but not SYSTEMD_EXEC_PID with its own number
    if os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid()):
        return RuntimePlace.UNIT
    return RuntimePlace.SHELL


def lacking(status: Status) -> tuple[Capability, ...]:
    """The capabilities without which other users' processes cannot be read, where they are not held."""
    return tuple(capability for capability in READS if not capability.held(status))


def grant(capabilities: Sequence[Capability], where: RuntimePlace, root: bool) -> str:
    """The line that grants these to the agent; `root` says whether it runs as root already.

    Capabilities added to a container reach only its root, and a unit's bounding set only bounds a root's.
    """
    names = [capability.name for capability in capabilities] or [PTRACE.name]
    if where is RuntimePlace.KUBERNETES:
        user = "" if root else "runAsUser: 0, "
        added = ", ".join(f'"{name}"' for name in names)
        return (
            f"securityContext: {{{user}capabilities: {{add: [{added}]}}}}   # in the agent's container of the manifest"
        )
    docker = f"docker run {' '.join(f'--cap-add {name}' for name in names)} ..."
    if where is RuntimePlace.DOCKER:
        return docker if root else f"{docker} --user root"
    if where is RuntimePlace.UNIT:
        user = "" if root else "User=root and "
        bound = " ".join(f"CAP_{name}" for name in names)
        return f"{user}CapabilityBoundingSet={bound}   # in the unit's [Service]: sudo systemctl edit hangdog-agent"
    if not root:
        return f"sudo {sys.executable} -m hangdog_agent.main ...   # the agent as root"
    return f"start the agent from a root that holds CAP_{' and CAP_'.join(names)}; in a container: {docker}"
