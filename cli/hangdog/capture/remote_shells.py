"""How a command is run on another machine: by ssh, srun, kubectl or pdsh.

A host's name is checked before it is used, and never part of what a shell reads. What the other side's shell reads is quoted.
"""

import math
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hangdog_models.errors import WrongUse
from hangdog_models.reading.printable import printable

#: Hosts of one capture: a job of 16,384 ranks has 2,048.
MOST_HOSTS = 4096
#: A machine that does not take up a connection by then does not answer. Seconds.
_CONNECT_S = 15
#: `fe80::1%eth0` is one, too; none begins with `-`, which would be an option.
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:%-]{0,253}"
_AT_HOST = re.compile(rf"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,63}}@)?{_NAME}")
_HOST = re.compile(_NAME)
_POD = re.compile(r"(?:([a-z0-9][a-z0-9.-]{0,62})/)?([a-z0-9][a-z0-9.-]{0,252})(?::([a-z0-9][a-z0-9-]{0,62}))?")
_RANGES = re.compile(r"([^\[\]]*)\[([0-9,-]+)\](.*)")

#: Options of the program, a host that was checked, the words of the remote command, seconds: the whole command line.
Compose = Callable[[Sequence[str], str, Sequence[str], float], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RemoteShell:
    """One of the programs; `text`: what comes back passes as lines of text only, and is encoded for it."""

    hosts: re.Pattern[str]
    example: str
    compose: Compose
    text: bool = False


def _ssh(options: Sequence[str], host: str, remote: Sequence[str], deadline_s: float) -> tuple[str, ...]:
    own = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S}")
    return ("ssh", *options, *own, "--", host, shlex.join(remote))  # ssh gives all of it to a shell there


def _srun(options: Sequence[str], host: str, remote: Sequence[str], deadline_s: float) -> tuple[str, ...]:
    own = (f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--overlap", "--input=none", "--quiet")
    return ("srun", *options, *own, f"--time={math.ceil(deadline_s / 60) + 1}", *remote)


def _kubectl(options: Sequence[str], host: str, remote: Sequence[str], deadline_s: float) -> tuple[str, ...]:
    found = _POD.fullmatch(host)
    assert found is not None
    namespace, pod, container = found.groups()
    where = (*(("-n", namespace) if namespace else ()), *(("-c", container) if container else ()))
    return ("kubectl", *options, "exec", *where, pod, "--", *remote)


def _pdsh(options: Sequence[str], host: str, remote: Sequence[str], deadline_s: float) -> tuple[str, ...]:
    # it passes lines on, and stops at a NUL; a failure of ours still shows by what does not come
    words = f"{shlex.join(remote)} | base64"
    return ("pdsh", *options, "-N", "-t", str(_CONNECT_S), "-u", str(math.ceil(deadline_s)), "-w", host, words)


SHELLS = {
    "ssh": RemoteShell(_AT_HOST, "gpu-a17 or user@gpu-a17", _ssh),
    "srun": RemoteShell(_HOST, "gpu-a17", _srun),
    "kubectl": RemoteShell(_POD, "pod, namespace/pod or namespace/pod:container", _kubectl),
    "pdsh": RemoteShell(_AT_HOST, "gpu-a17 or user@gpu-a17", _pdsh, text=True),
}


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """A program with options of the user's: `ssh -p 2222`."""

    name: str
    options: tuple[str, ...]

    @property
    def shell(self) -> RemoteShell:
        return SHELLS[self.name]

    def command(self, host: str, remote: Sequence[str], deadline_s: float) -> tuple[str, ...]:
        """What runs `remote` on a host of `expanded`."""
        return self.shell.compose(self.options, host, remote, deadline_s)


def parse(text: str) -> RemoteCall:
    """Reads `--over`; raises WrongUse."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise WrongUse(f"--over {printable(text, 80)}: {error}", "quote it as in a shell", code="bad-command") from None
    if not words or words[0] not in SHELLS:
        what = f"--over {printable(text, 80)}: hangdog cannot run commands through it"
        raise WrongUse(
            what, f"give one of {', '.join(SHELLS)}, with its options if needed: 'ssh -p 2222'", code="unknown-choice"
        )
    return RemoteCall(words[0], tuple(words[1:]))


def expanded(shell: RemoteShell, hosts: Sequence[str]) -> tuple[str, ...]:
    """The names of all hosts, each once: separated by commas, and with ranges as Slurm writes them; raises WrongUse."""
    found: dict[str, None] = {}
    for text in hosts:
        for name in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text):
            for host in _ranges(name):
                if not shell.hosts.fullmatch(host):
                    raise WrongUse(
                        f"{printable(host, 80)!r} is not a host name", f"write it as {shell.example}", code="bad-name"
                    )
                found[host] = None
                if len(found) > MOST_HOSTS:
                    raise WrongUse(f"more than {MOST_HOSTS} hosts", "capture them in several turns", code="too-many")
    if not found:
        raise WrongUse("no host is named", f"write it as {shell.example}", code="no-machine-named")
    return tuple(found)


def _ranges(name: str) -> list[str]:
    """`gpu-a[01-03,7]` in full; a name without brackets is itself."""
    match = _RANGES.fullmatch(name)
    if match is None:
        return [name]
    before, listed, rest = match.groups()
    names: list[str] = []
    for part in listed.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or max(len(first), len(last)) > 9:
            return [name]
        numbers = range(int(first), int(last if dash else first) + 1)
        if len(numbers) > MOST_HOSTS:
            raise WrongUse(f"more than {MOST_HOSTS} hosts", "capture them in several turns", code="too-many")
        names += [f"{before}{number:0{len(first)}d}" for number in numbers]
    return [host for one in names for host in _ranges(f"{one}{rest}")]
