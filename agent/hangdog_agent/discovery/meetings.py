"""Finds where processes meet, by the connections that the kernel lists: all ranks of a job stay connected to one of them.

That one is rank 0: torch's TCPStore, or JAX's coordinator, listens in it. It is connected to itself, too, as no server usually
is, and as in none of the meshes that gloo and NCCL make among the ranks.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

#: States of a socket in `net/tcp` (include/net/tcp_states.h).
_ESTABLISHED, _LISTENS = "01", "0A"
#: How an address of IPv4 begins in the table of IPv6, as the kernel writes it.
_MAPPED = "0000000000000000FFFF0000"
_END = re.compile(r"[0-9A-F]{8}(?:[0-9A-F]{24})?:[0-9A-F]{4}")


@dataclass(frozen=True, slots=True)
class Socket:
    """A row of `net/tcp` or `net/tcp6`; both ends as the kernel writes them, without the prefix of mapped addresses."""

    here: str
    there: str
    listens: bool
    inode: str

    @property
    def port(self) -> int:
        """The port of this end."""
        return int(self.here[-4:], 16)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where processes meet: `first` listens at `port`, `members` are connected there, itself included.

    `strangers`: others are connected, too, so that the job has more processes than these.
    """

    first: int
    members: frozenset[int]
    port: int
    strangers: bool


def parse(lines: Iterable[str]) -> Iterator[Socket]:
    """The listening and the open sockets of a table; rows that make no sense are left out."""
    for line in lines:
        words = line.split()
        if len(words) < 10 or words[3] not in (_ESTABLISHED, _LISTENS) or not words[9].isdigit():
            continue
        if _END.fullmatch(words[1]) and _END.fullmatch(words[2]):
            here, there = words[1].removeprefix(_MAPPED), words[2].removeprefix(_MAPPED)
            yield Socket(here, there, words[3] == _LISTENS, words[9])


def meeting(sockets: Iterable[Socket], owners: Mapping[str, int]) -> Meeting | None:
    """Where most of the processes meet; `owners` are the pids by the inode of their sockets."""
    listening: list[tuple[int, Socket]] = []
    ends: dict[tuple[str, str], int] = {}
    for one in sockets:
        owner = owners.get(one.inode)
        if owner is not None and one.listens:
            listening.append((owner, one))
        elif owner is not None:
            ends[one.here, one.there] = owner
    found = (_at(listener, at, ends) for listener, at in listening)
    # of several the one that was opened first: torch's own stores come before those of what is built on it
    return max((one for one in found if one is not None), key=lambda one: len(one.members), default=None)


def _at(listener: int, at: Socket, ends: Mapping[tuple[str, str], int]) -> Meeting | None:
    accepted = [end for end, owner in ends.items() if owner == listener and int(end[0][-4:], 16) == at.port]
    # the other end of each, as its own process sees it
    members = [ends.get((there, here)) for here, there in accepted]
    known = frozenset(member for member in members if member is not None)
    if listener not in known or len(known) < 2:
        return None
    return Meeting(listener, known, at.port, None in members)


def elsewhere(sockets: Iterable[Socket], owners: Mapping[str, int]) -> int:
    """The port of one place on another machine where all of the processes are connected; 0 where there is none."""
    places: dict[str, set[int]] = {}
    local: set[str] = set()
    for one in sockets:
        local.add(one.here)
        if (owner := owners.get(one.inode)) is not None and not one.listens:
            places.setdefault(one.there, set()).add(owner)
    everybody = set(owners.values())
    common = sorted(there for there, members in places.items() if members == everybody and there not in local)
    return int(common[0][-4:], 16) if common else 0
