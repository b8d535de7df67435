"""How a server is reached: its address, the certificates on the way to it, and the token that says who asks."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from hangdog_models.errors import WrongUse
from hangdog_proto import pems

Options = tuple[tuple[str, int], ...]
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """`address` is HOST:PORT; `tls` a folder with certificates, None for plain text; `insecure` takes plain text anywhere."""

    address: str
    tls: Path | None = None
    token: str = field(default="", repr=False)
    insecure: bool = False

    def metadata(self) -> Metadata:
        """What is sent along with each request."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches `HOST:PORT`; of names, only `localhost` is believed."""
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_privacy(reach: Reach) -> None:
    """Raises WrongUse where stacks and tokens would cross a network in plain text though nobody said that they may."""
    if reach.tls is None and not reach.insecure and not is_loopback(reach.address):
        raise WrongUse(
            f"{reach.address} is not this machine, and without TLS whoever is on the way reads along and answers",
            "give --tls DIR (HANGDOG_TLS), a folder from `hangdog certs`; or --insecure where the network is trusted",
        )


def open_channel(reach: Reach, options: Options) -> grpc.Channel:
    """A channel for a program without an event loop; raises WrongUse."""
    require_privacy(reach)
    if reach.tls is None:
        return grpc.insecure_channel(reach.address, options=options)
    return grpc.secure_channel(reach.address, pems.channel_credentials(reach.tls), options=options)


def open_aio_channel(reach: Reach, options: Options) -> grpc.aio.Channel:
    """A channel on the running event loop; raises WrongUse."""
    require_privacy(reach)
    if reach.tls is None:
        return grpc.aio.insecure_channel(reach.address, options=options)
    return grpc.aio.secure_channel(reach.address, pems.channel_credentials(reach.tls), options=options)
