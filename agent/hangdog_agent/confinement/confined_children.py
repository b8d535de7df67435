"""How programs are started that read what trainers control: tools within bounds, readers by the name of their module."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

from hangdog_agent.confinement.credentials import Credentials, CredentialsRefused

#: Where the system's own tools lie; never anywhere else on PATH.
_SYSTEM = "/usr/bin:/bin:/usr/sbin:/sbin"
_PACKAGES = os.fspath(Path(__file__).parent.parent.parent)
#: What a reader may need of our environment to be a Python at all.
_KEPT = ("LD_LIBRARY_PATH",)


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """Bounds of a tool, as the kernel keeps them (getrlimit(2)): sizes in bytes, 0 for none. It writes no files, nor cores.

    `address_bytes` counts what it maps, files included, `data_bytes` the memory it takes for itself.
    """

    address_bytes: int = 4 << 30
    data_bytes: int = 1 << 30

    def words(self, deadline_s: float | None) -> tuple[str, ...]:
        """As arguments of prlimit(1), for a tool that has so many seconds; None for one that stays."""
        cpu_s = 0 if deadline_s is None else int(deadline_s) + 2
        bounds = {"as": self.address_bytes, "data": self.data_bytes, "cpu": cpu_s, "nofile": 1024}
        return (*(f"--{name}={most}" for name, most in bounds.items() if most), "--fsize=0", "--core=0")


class User(TypedDict, total=False):
    """Arguments of subprocess.Popen."""

    user: int
    group: int
    extra_groups: Sequence[int]


@dataclass(frozen=True, slots=True)
class Child:
    """How a program is started: within limits where they are given, as the user `who`, with these capabilities (bits).

    Without `who` it keeps the agent's user. An agent that is not root runs all as itself: its own rights are a user's.
    """

    limits: ChildLimits | None = None
    who: Credentials | None = None
    capabilities: tuple[int, ...] = ()

    def command(self, command: Sequence[str], deadline_s: float | None) -> tuple[str, ...]:
        """The command within its limits, unable to gain privileges; raises Refused where the system lacks util-linux."""
        if self.limits is None:
            return tuple(command)
        prlimit, setpriv = _tool("prlimit"), _tool("setpriv")
        if prlimit is None or setpriv is None:
            raise CredentialsRefused("prlimit and setpriv are not installed: apt-get install util-linux")
        return (prlimit, *self.limits.words(deadline_s), setpriv, "--no-new-privs", "--", *command)

    def user(self) -> User:
        """Whose it is, for Popen; raises Refused where the agent has not the right to start it as that user."""
        if self.who is None or os.geteuid() != 0:
            return {}
        held = _held()
        if not all(held >> bit & 1 for bit in _BECOMES):
            raise CredentialsRefused(f"the agent needs {_NEEDS} to read it with its user's rights alone")
        # by number: a name would be looked up, and that may hang. Never an empty list of groups: Python 3.12.0 then keeps ours
        return {"user": self.who.uid, "group": self.who.gid, "extra_groups": self.who.groups or (self.who.gid,)}


SYS_PTRACE, DAC_READ_SEARCH = 19, 2
#: Bits of CAP_SETGID, CAP_SETUID and CAP_SETPCAP.
_BECOMES = (6, 7, 8)
_NEEDS = "CAP_SETUID, CAP_SETGID and CAP_SETPCAP"
#: As the agent starts what reads nothing of a trainer's.
PLAIN = Child()
#: A reader becomes the trainer's user by itself.
READER = Child(capabilities=(SYS_PTRACE, DAC_READ_SEARCH, *_BECOMES[:2]))


def tool(who: Credentials, limits: ChildLimits) -> Child:
    """A tool that reads a trainer: as its user, with the right to read its memory."""
    return Child(limits, who, (SYS_PTRACE,))


def _held() -> int:
    """The capabilities in force of this process."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123 - no path of ours
        return next((int(line.split()[1], 16) for line in status if line.startswith("CapEff:")), 0)


@cache
def _tool(name: str) -> str | None:
    return shutil.which(name, path=_SYSTEM)


def reader(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module of the agent with nothing but the standard library: it starts in 25 ms.

    It begins with the agent's rights and gives them up by itself (kernel.become), before it opens what a trainer names.
    """
    program = f"import sys; sys.path.insert(0, {_PACKAGES!r}); from {module} import main; main()"
    return (sys.executable, "-I", "-S", "-B", "-c", program, *arguments)


def environment() -> dict[str, str]:
    """The environment of a reader."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}
