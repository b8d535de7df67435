"""How a process ended that is none of ours: what the kernel still says of it until, and in new kernels after, it is reaped."""

import fcntl
import os
import struct

from hangdog_agent.procfs import Proc

#: PIDFD_GET_INFO of <linux/pidfd.h>: what is asked for, and the first version of its structure, which ends with the status.
_GET_INFO, _SIZE = 0xC040FF0B, 64
#: PIDFD_INFO_EXIT, Linux 6.15 and newer: the status of a process that was reaped.
_EXIT = 1 << 3
#: Where proc(5) has the status of a zombie: field 52, counted from the state, which is field 3.
_STATUS_AT = 49


def of_zombie(proc: Proc, pid: int, started: int) -> int | None:
    """The status of a process that was not reaped yet; None when it was, or lives. 0 also where we may not know it."""
    read = proc.raw(pid, "stat")
    fields = read.rpartition(b")")[2].split() if isinstance(read, bytes) else []
    if len(fields) <= _STATUS_AT or fields[0] not in (b"Z", b"X") or int(fields[19]) != started:
        return None
    return os.waitstatus_to_exitcode(int(fields[_STATUS_AT]))


def of_reaped(pidfd: int) -> int | None:
    """The status of a process that was reaped; None where the kernel does not keep it."""
    answer = bytearray(struct.pack("Q", _EXIT) + bytes(_SIZE - 8))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, answer, True)
    except OSError:
        return None
    mask, status = struct.unpack_from("Q", answer)[0], struct.unpack_from("i", answer, _SIZE - 4)[0]
    return os.waitstatus_to_exitcode(status) if mask & _EXIT else None
