"""Who a process is to the kernel: the user and groups whose rights its files are opened with."""

import os
import struct
from dataclasses import dataclass

#: Groups read of one process; the kernel allows 65,536.
_MOST_GROUPS = 1 << 16
#: Of <linux/auxvec.h>; and the most bytes of a vector, which has some twenty entries.
_AT_SECURE = 23
_MOST_AUXILIARY = 1 << 14
_UNKNOWN = "the kernel does not say which user owns it"


class CredentialsRefused(Exception):
    """Why something of a trainer is not opened, in words without a path or pid: those of many ranks are told together."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user, its group and its other groups, as numbers of the machine's own user namespace."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    @property
    def own(self) -> bool:
        """Whether they are those of this process already."""
        return (self.uid, self.gid) == (os.geteuid(), os.getegid())


def of(pid: int, proc: str = "/proc") -> Credentials:
    """The credentials of a process; raises Refused, and ProcessLookupError where there is none."""
    try:
        with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as status:  # noqa: PTH123 - a round's cost
            return parse(status.read())
    except OSError:
        raise ProcessLookupError(f"process {pid} has ended") from None


def of_its_own(pid: int, proc: str = "/proc") -> Credentials:
    """As `of`; raises Refused, too, where a program lent it these rights (`lent`)."""
    who = of(pid, proc)
    try:
        with open(f"{proc}/{pid}/auxv", "rb") as auxiliary:  # noqa: PTH123 - as above
            lent(auxiliary.read(_MOST_AUXILIARY))
    except FileNotFoundError:
        raise ProcessLookupError(f"process {pid} has ended") from None
    except OSError:
        # an agent that is no root may not read it, and has no rights to lend
        if os.geteuid() == 0:
            raise CredentialsRefused(_UNKNOWN) from None
    return who


def lent(auxiliary: bytes) -> None:
    """Raises Refused where a process runs a program that gave it rights (setuid, or file capabilities).

    Such a program may become its owner wholly, as `su` does, and then `/proc/PID/status` shows nothing. What the kernel told
    it as it began (`/proc/PID/auxv`, AT_SECURE of getauxval(3)) still does.
    """
    for form in ("=QQ", "=II"):
        size = struct.calcsize(form)
        reported = dict(struct.iter_unpack(form, auxiliary[: len(auxiliary) // size * size]))
        if _AT_SECURE in reported:
            if reported[_AT_SECURE]:
                raise CredentialsRefused("it runs with another user's rights (setuid), and is not read")
            return
    if auxiliary:  # one that is ending has none
        raise CredentialsRefused(_UNKNOWN)


def parse(status: str) -> Credentials:
    """The credentials in `/proc/PID/status`; raises Refused where they are mixed or cannot be read.

    A program that runs as another user than the one who started it (setuid) has mixed ones. Its starter must not gain
    the program's rights by way of the agent, nor does any trainer run like that.
    """
    try:
        uids, gids = _numbers(status, "Uid"), _numbers(status, "Gid")
        groups = tuple(sorted(set(_numbers(status, "Groups"))))
    except ValueError:
        raise CredentialsRefused(_UNKNOWN) from None
    if len(uids) != 4 or len(gids) != 4 or len(groups) > _MOST_GROUPS:
        raise CredentialsRefused(_UNKNOWN)
    if len(set(uids)) > 1 or len(set(gids)) > 1:
        raise CredentialsRefused("it runs with another user's rights (setuid), and is not read")
    return Credentials(uids[0], gids[0], groups)


def _numbers(status: str, name: str) -> list[int]:
    """Those of one line, none where there is no such line: of fifty lines three matter, every second for every trainer."""
    _, found, rest = f"\n{status}".partition(f"\n{name}:")
    return [int(word) for word in rest.partition("\n")[0].split()] if found else []
