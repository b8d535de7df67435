"""The flight record that PyTorch wrote by itself, as it does after a time-out or an error, if it is surely this process's own.

After that it often answers its FIFO no more, and where no FIFO is named it is all there is. But the same place may hold the
dump of an earlier life of the job, or of another one that counts its ranks likewise. So the record itself must tell whose it
is: by when its newest operation was, and by its threads, whose numbers are addresses in the memory of the process that wrote
it, and lie elsewhere in each process (ASLR).
"""

import math
import re
import struct
import time

from hangdog_agent.capture.flight_recorder.asked_rank import AskedRank
from hangdog_agent.capture.flight_recorder.dump_files import SETTLED_S, Identity, identity, whole
from hangdog_agent.confinement.credentials import CredentialsRefused

#: Whole numbers of eight bytes, as a pickle writes them (LONG1): among them all times, in ns.
_LONG = re.compile(rb"\x8a\x08(.{8})", re.DOTALL)
#: Texts of 12 to 20 digits (BINUNICODE): the numbers of threads, as C++ prints them.
_NUMBER = re.compile(rb"X[\x0c-\x14]\0\0\0(\d{12,20})")
_THREADS = b"thread_id"
#: What every refusal begins with.
THERE = "the dump on disk"
#: Times of one clock are read one after the other, and the kernel notes those of files by its last tick. Seconds.
_JITTER_S = 1.0


def find(rank: AskedRank, most: int, now: float, stated: bool) -> tuple[bytes, int] | None:
    """The newest whole dump that the rank wrote by itself, and how many seconds before `now`; None where none lies there.

    `stated`: its place was named by the trainer's environment, so that others' are unlikely there. Raises Refused where
    what lies there may be another's, OSError.
    """
    found = sorted([(seen[2], file, seen) for file in rank.dumps if (seen := identity(rank, file))], reverse=True)
    if not found:
        return None
    _, file, seen = found[0]
    time.sleep(SETTLED_S)  # so that one which is being written just now is told
    record = _read(rank, file, seen, most)
    written_s = seen[2] / 1e9
    latest_s = newest_s(record, now + _JITTER_S)
    if latest_s is None:
        raise CredentialsRefused(f"{THERE} has no time in it: it may be from an earlier start")
    if min(latest_s, written_s) < rank.began_s(now):
        raise CredentialsRefused(f"{THERE} is from an earlier start of the job")
    if not latest_s - _JITTER_S <= written_s <= now + _JITTER_S:
        raise CredentialsRefused(f"{THERE} has an impossible time: the clock of its file server differs")
    if not _is_own(rank, record, stated):
        raise CredentialsRefused(f"{THERE} may be from another process")
    return record, max(1, math.ceil(now - written_s))


def _read(rank: AskedRank, file: str, seen: Identity, most: int) -> bytes:
    if seen is not None and seen[3] > most:
        raise CredentialsRefused(f"{THERE}, of {seen[3]} bytes, is longer than {most}")
    try:
        record = whole(rank, file, seen, rank.who.uid)
    except PermissionError:
        raise CredentialsRefused(f"{THERE} belongs to another user") from None
    if not record:
        raise CredentialsRefused(f"{THERE} is incomplete")
    return record


def newest_s(record: bytes, until: float) -> float | None:
    """The newest time in a record, of those before `until`, as Unix seconds by the clock of this machine."""
    times = (struct.unpack("<q", number)[0] / 1e9 for number in _LONG.findall(record))
    return max((one for one in times if 1e9 < one <= until), default=None)


def _is_own(rank: AskedRank, record: bytes, stated: bool) -> bool:
    """Whether one of the record's threads lies in the rank's memory; older PyTorch names none, then the place decides."""
    if _THREADS not in record:
        return stated
    threads = threads_of(record)
    return any(thread in piece for piece in rank.memory() for thread in threads)


def threads_of(record: bytes) -> set[int]:
    """The numbers of the threads in a record; a name of digits alone may be among them."""
    return {int(number) for number in _NUMBER.findall(record)}
