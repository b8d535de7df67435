"""How a server is reached: its address, where its certificates lie, and the token that says who asks.

Nothing here imports gRPC, which takes a twentieth of a second: commands that ask no server do not wait for it.
"""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from hangdog_models.errors import WrongUse

Metadata = tuple[tuple[str, str], ...]

#: Where a server listens, and where it is looked for, unless told otherwise: this machine only.
DEFAULT_ADDRESS = "127.0.0.1:7411"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """`address` is HOST:PORT or unix:PATH; `tls` a folder with certificates, None for plain text; `insecure` takes plain text anywhere.

    `own` is a file with a certificate and its key that counts instead of those in the folder.
    """

    address: str
    tls: Path | None = None
    token: str = field(default="", repr=False)
    insecure: bool = False
    own: Path | None = None

    def metadata(self) -> Metadata:
        """What is sent along with each request."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches `HOST:PORT` or `unix:PATH`; of names, only `localhost` is believed."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_privacy(reach: ServerAddress) -> None:
    """Raises WrongUse where stacks and tokens would cross a network in plain text though nobody said that they may."""
    if reach.tls is None and not reach.insecure and not is_loopback(reach.address):
        raise WrongUse(
            f"{reach.address} is another machine, and without TLS others on the network could read and forge answers",
            "give --tls DIR (HANGDOG_TLS), a folder from `hangdog certs`; or --insecure on a network that you trust",
            code="unencrypted-connection",
        )
