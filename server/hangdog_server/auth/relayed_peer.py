"""Who is at the other end, as the relay tells it to gRPC: by the name of the socket that it connects with."""

import itertools
import os
from dataclasses import dataclass
from urllib.parse import unquote

#: What gRPC puts before the name of a socket that has no file, and we before ours.
_PREFIX = "unix-abstract:"
_OURS = "hangdog|"
#: Bytes that the name of a socket may have.
_LONGEST = 107
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class From:
    """Where a request comes from: gRPC's word for the peer (`ipv4:10.0.0.5:33412`, `unix:`).

    `uid` is the user of this machine who asks, None where that is not known; `role` what that user may without a token, a
    word, empty for nothing.
    """

    address: str
    uid: int | None = None
    role: str = ""

    @property
    def unix(self) -> bool:
        """Whether it came by the unix socket."""
        return self.address.startswith("unix")


def written(origin: From) -> bytes:
    """The name of a socket that tells this; each time another one."""
    who = "" if origin.uid is None else str(origin.uid)
    unique = f"{os.getpid():x}.{next(_numbers):x}"
    name = f"\0{_OURS}{unique}|{origin.address}|{who}|{origin.role}".encode()
    if len(name) > _LONGEST:
        raise ValueError(f"{origin.address} is too long")
    return name


def read(peer: str) -> From:
    """What the relay told, by gRPC's word for its end. Nobody else can connect there, so it is true."""
    if not peer.startswith(_PREFIX):
        return From(peer)
    ours = unquote(peer.removeprefix(_PREFIX))
    if not ours.startswith(_OURS):
        return From(peer)
    _, _, address, who, role = ours.split("|")
    return From(address, int(who) if who else None, role)


def word(address: tuple[str, int]) -> str:
    """gRPC's word for the address of a TCP peer."""
    host, port = address[0].partition("%")[0], address[1]
    if host.startswith("::ffff:") and "." in host:
        host = host.removeprefix("::ffff:")
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
