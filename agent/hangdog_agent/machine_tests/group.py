"""Where the machines of a group meet, and by which interface this one gets there."""

import ctypes
import ctypes.util
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """A group of `members` machines of which this is number `member`; `meet` is HOST:PORT on member 0, empty: no group."""

    meet: str = ""
    member: int = 0
    members: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"member {at}" for at in range(self.members))

    @property
    def host(self) -> str:
        return self.meet.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> str:
        return self.meet.rpartition(":")[2]

    def wrong(self) -> str:
        """What is wrong with it; empty where it can be used."""
        if not self.meet:
            return "no group was given (--meet, --member, --members)"
        if not self.host or not self.port.isdecimal() or not 0 < int(self.port) < 65_536:
            return f"{self.meet!r} is not HOST:PORT"
        if self.members < 2 or not 0 <= self.member < self.members:
            return f"a group of {self.members} has no member {self.member}"
        return ""

    def interface(self) -> str:
        """The network interface on the way to the meeting point; empty where none is found, and libraries choose.

        gloo takes the interface of the host's own name otherwise, which on many machines is the loopback.
        """
        try:
            family, kind, _, _, address = socket.getaddrinfo(self.host, int(self.port), type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as way:
                way.connect(address)  # of a datagram socket: nothing is sent
                own = way.getsockname()[0]
        except (OSError, ValueError):
            return ""
        return _with_address(own)


class _Address(ctypes.Structure):
    """The beginning of struct sockaddr_in."""

    _fields_ = (("family", ctypes.c_uint16), ("port", ctypes.c_uint16), ("address", ctypes.c_ubyte * 20))


class _Interface(ctypes.Structure):
    """The beginning of struct ifaddrs, see getifaddrs(3)."""


_Interface._fields_ = (
    ("next", ctypes.POINTER(_Interface)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_Address)),
)


def _with_address(own: str) -> str:
    """The interface that has this address."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Interface)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        return ""
    try:
        at = first
        while at:
            entry = at.contents
            if entry.address and entry.name and _text(entry.address.contents) == own:
                return str(entry.name.decode("ascii", "replace"))
            at = entry.next
        return ""
    finally:
        libc.freeifaddrs(first)


def _text(address: _Address) -> str:
    """The address as people write it; empty for families other than IP."""
    raw = bytes(address.address)
    if address.family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, raw[:4])
    if address.family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, raw[4:20])
    return ""
