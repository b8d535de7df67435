"""Reads the end of what NCCL Inspector writes for one trainer, in a process that has the trainer's rights on files and no others.

Started by inspector_dump.py with one JSON object as its argument, and killed at its deadline. It writes whole lines to stdout,
and nothing where the file is empty or the trainer has it open no more; else it says on stderr what is wrong.
"""

import json
import os
import stat
import sys
from typing import Any

from hangdog_agent.confinement import syscalls
from hangdog_agent.confinement.credentials import CredentialsRefused
from hangdog_agent.confinement.pinned_process import PinnedProcess

#: The newest operations of one rank: a thousand of them, or a hundred with all of their events. They deflate to a tenth.
MOST_BYTES = 512 << 10


def main() -> None:
    order = json.loads(sys.argv[1])
    try:
        handle = _opened(order)
    except FileNotFoundError:
        return
    except CredentialsRefused as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"what NCCL Inspector writes cannot be opened: {error.strerror or error}")
    size = os.fstat(handle).st_size
    sys.stdout.buffer.write(whole_lines(os.pread(handle, MOST_BYTES, max(0, size - MOST_BYTES)), size > MOST_BYTES))


def whole_lines(data: bytes, cut: bool) -> bytes:
    """A piece of a file up to the end of its last line; `cut`: from where the first line ends, for it is a part of one."""
    begin = data.find(b"\n") + 1 if cut else 0
    return data[begin : data.rfind(b"\n") + 1] if begin or not cut else b""


def _opened(order: dict[str, Any]) -> int:
    """The file, opened with its user's rights, if it is what it was when it was found; raises Refused, OSError."""
    process = PinnedProcess(order["proc"], order["pid"], order["started"])
    who = process.credentials()
    reached, name = process.descriptor(order["descriptor"]), process.file_name(order["descriptor"])
    syscalls.become(who, order["cpu_s"])
    if name != order["name"]:
        raise FileNotFoundError
    if not stat.S_ISREG(os.fstat(reached).st_mode):
        raise CredentialsRefused("what NCCL Inspector should write is no regular file")
    return syscalls.reopen(reached, os.O_RDONLY)


if __name__ == "__main__":
    main()
