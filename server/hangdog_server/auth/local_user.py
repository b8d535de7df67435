"""Which user of this machine is at the other end of a connection, by the kernel's word."""

import functools
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hangdog_server.auth.tokens import Role

#: SO_PEERGROUPS of Linux: all groups of whoever connected, as they were then. Python has no name for it.
_SO_PEERGROUPS = 59
#: Groups that are read: people are in some dozen, and Python takes no longer answer. Of more only the first one counts.
_GROUPS = 256
#: Of netlink's sock_diag.
_SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _NETLINK_SOCK_DIAG, _TCP_ESTABLISHED = 20, 1, 4, 1
_NLMSG = struct.Struct("=IHHII")
_SOCKID = struct.Struct("!HH16s16s")
#: The kernel answers at once; it is waited for all the same no longer than this. Seconds.
_ANSWER_S = 1.0
#: What the map of users says where all users of the machine are known by their own numbers.
_WHOLE_MAP = ("0", "0", "4294967295")


@dataclass(frozen=True, slots=True)
class Caller:
    """A process of this machine, by its user's number and its groups'; `groups` is empty where they are not known."""

    uid: int
    groups: frozenset[int] = frozenset()


def of_unix(connection: socket.socket) -> Caller | None:
    """Who connected to a unix socket; None where that is a user who has no number here."""
    try:
        _, uid, gid = struct.unpack("=3I", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:
        return None
    if uid in _strangers("uid"):
        return None
    try:
        more = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _GROUPS)
    except OSError:  # a kernel before 4.13, or a great many groups
        more = b""
    groups = {gid, *struct.unpack(f"={len(more) // 4}I", more)}
    return Caller(uid, frozenset(groups - _strangers("gid")))


def of_loopback(peer: tuple[str, int], own: tuple[str, int]) -> Caller | None:
    """Whose TCP socket of this machine is at `peer` and connected to `own`; None where that cannot be told.

    It is whoever made that socket. Only while it is connected: of one that is closed, the kernel says it were root's.
    """
    try:
        family, source = _packed(peer[0])
        same, target = _packed(own[0])
        if family != same:
            return None
        asked = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 1 << _TCP_ESTABLISHED)
        asked += _SOCKID.pack(peer[1], own[1], source, target) + struct.pack("=I", 0) + b"\xff" * 8
        header = _NLMSG.pack(_NLMSG.size + len(asked), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(_ANSWER_S)
            netlink.sendto(header + asked, (0, 0))
            answer = netlink.recv(8192)
        return _parsed(answer, peer[1], own[1])
    except (OSError, ValueError, struct.error):  # netlink is forbidden here, or there is no such connection
        return None


def _parsed(answer: bytes, source: int, target: int) -> Caller | None:
    _, kind, _, _, _ = _NLMSG.unpack_from(answer)
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None
    at = _NLMSG.size
    state = answer[at + 1]
    ports = struct.unpack_from("!HH", answer, at + 4)
    uid, inode = struct.unpack_from("=II", answer, at + 4 + 48 + 12)
    if state != _TCP_ESTABLISHED or ports != (source, target) or not inode or uid in _strangers("uid"):
        return None
    return Caller(uid)


def _packed(host: str) -> tuple[int, bytes]:
    host = host.removeprefix("::ffff:") if "." in host else host.partition("%")[0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return family, socket.inet_pton(family, host).ljust(16, b"\0")


@functools.cache
def _strangers(kind: str) -> frozenset[int]:
    """The number that stands for all users, or groups, who have none in this user namespace; empty where all have one."""
    try:
        if tuple(Path(f"/proc/self/{kind}_map").read_text().split()) == _WHOLE_MAP:
            return frozenset()
        return frozenset({int(Path(f"/proc/sys/kernel/overflow{kind}").read_text())})
    except (OSError, ValueError):
        return frozenset({65534})


@dataclass(frozen=True, slots=True)
class LocalUsers:
    """The users of this machine that are let in without a token: this process' own and root may do everything.

    `groups` says what the members of a group may: a role's word, by the group's number.
    """

    groups: Mapping[int, str] = field(default_factory=dict)

    def name(self, uid: int | None) -> str:
        """What a user is called: the audit log outlives the names that a machine gives its users."""
        return "the server's user" if uid == os.geteuid() else "root" if uid == 0 else f"uid {uid}"

    def role(self, caller: Caller | None) -> str:
        """The highest of the caller's roles, a word; empty for none."""
        if caller is None:
            return ""
        if caller.uid in (0, os.geteuid()):
            return Role.ACT.word
        has = [Role[self.groups[group].upper()] for group in caller.groups & self.groups.keys()]
        return max(has).word if has else ""
