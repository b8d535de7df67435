"""Runs a command and writes down its exit status, its seconds and its peak memory. It is small, for a child begins with its parent's memory.

python -I -S bench/peers/measured.py RESULT COMMAND ...
"""

import argparse
import json
import os
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path, help="the file to write")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    began = time.monotonic()
    _, status, used = os.wait4(os.posix_spawnp(options.command[0], options.command, os.environ), 0)
    seconds = time.monotonic() - began
    found = {"status": os.waitstatus_to_exitcode(status), "seconds": seconds, "mib": used.ru_maxrss >> 10}
    options.result.write_text(json.dumps(found), encoding="ascii")


if __name__ == "__main__":
    main()
