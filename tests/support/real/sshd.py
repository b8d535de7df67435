"""An sshd of the tests' own: on a free port of loopback addresses, for this user and one key, and ended by its own id."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hangdog.demo.conductor import free_port

MISSING = "sshd is not installed: apt-get install --no-install-recommends openssh-server openssh-client"
_DAEMONS = "/usr/sbin:/sbin"
#: Where its child waits before anybody has logged in, as root; a package makes it as the daemon starts.
_EMPTY = Path("/run/sshd")
_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Sshd:
    """`over` is how a client calls it; it listens at 127.0.0.1 and 127.0.0.2, and nobody at 127.0.0.3."""

    over: str
    options: str


def installed() -> bool:
    return bool(_daemon() and shutil.which("ssh") and shutil.which("ssh-keygen"))


def _daemon() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{_DAEMONS}")


@contextmanager
def serving(folder: Path) -> Iterator[Sshd]:
    """One while the block lasts; `folder` is empty, and its path has no blanks."""
    daemon = _daemon()
    assert daemon is not None
    if os.geteuid() == 0:
        _EMPTY.mkdir(mode=0o755, exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    port = free_port()
    server, client = folder / "sshd_config", folder / "ssh_config"
    server.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nListenAddress 127.0.0.2\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\n"
    )
    client.write_text(
        f"Port {port}\nIdentityFile {folder}/user\nIdentitiesOnly yes\nStrictHostKeyChecking no\n"
        "UserKnownHostsFile /dev/null\nLogLevel ERROR\n"
    )
    process = subprocess.Popen([daemon, "-D", "-f", server, "-E", folder / "log"], stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + _WITHIN_S
        while time.monotonic() < until and process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.2", port), 1.0):
                break
            time.sleep(0.05)
        assert process.poll() is None, (folder / "log").read_text()
        yield Sshd(f"ssh -F {client}", f"-F {client}")
    finally:
        process.terminate()
        process.wait()
