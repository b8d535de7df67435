"""Where the server of this machine keeps its files, and where its socket lies."""

import os
import socket
from pathlib import Path

from hangdog_proto.client.server_address import DEFAULT_ADDRESS

#: What lies beside a store: people's tokens, the audit log, the deny list of certificates, and the socket
#: for people of this machine.
TOKENS, AUDIT, DENIED, SOCKET = "tokens.json", "audit.jsonl", "denied.json", "server.sock"
#: The socket of a server that belongs to the whole machine.
SHARED = Path("/run/hangdog/server.sock")
#: A server answers at once, or is none. Seconds.
_ALIVE_S = 1.0


def default_store() -> str:
    """Where the XDG specification wants what a program remembers."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(state) / "hangdog" / "incidents.db")


def next_to_store(store: str, name: str) -> Path:
    """A file that belongs to a store; of a database elsewhere it lies where the store would lie by default."""
    return Path(default_store() if "://" in store else store).parent / name


def next_to_default_store(name: str) -> Path:
    """The same of the store that `hangdog server` takes when nothing else is said."""
    return next_to_store(os.environ.get("HANGDOG_STORE") or default_store(), name)


def server_here() -> str:
    """The server of this machine: its socket where one answers us, else the address where servers listen."""
    if named := os.environ.get("HANGDOG_SOCKET"):
        return f"unix:{named}"
    found = next((path for path in (next_to_default_store(SOCKET), SHARED) if _answers(path)), None)
    return DEFAULT_ADDRESS if found is None else f"unix:{found}"


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ALIVE_S)
        try:
            asking.connect(str(path))
        except OSError:  # there is none, it is not for us, or its path is too long
            return False
    return True
