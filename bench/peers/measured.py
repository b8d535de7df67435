"""Runs a command and writes down its exit status, its seconds and its peak memory: small, for a child begins with its parent's."""

import json
import os
import sys
import time


def main() -> None:
    result, *command = sys.argv[1:]
    began = time.monotonic()
    _, status, used = os.wait4(os.posix_spawnp(command[0], command, os.environ), 0)
    seconds = time.monotonic() - began
    with open(result, "w", encoding="ascii") as out:  # noqa: PTH123  # pathlib alone would double what this holds
        json.dump({"status": os.waitstatus_to_exitcode(status), "seconds": seconds, "mib": used.ru_maxrss >> 10}, out)


if __name__ == "__main__":
    main()
