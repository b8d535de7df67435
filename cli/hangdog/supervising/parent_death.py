"""Becomes a command that is told to end when its supervisor dies, in whatever way: `python -m ...tether PARENT COMMAND...`."""

import os
import signal
import sys

from hangdog.demo.prctl import die_with

#: What a shell answers for a command that is not there, and for one that cannot be run.
NOT_FOUND, NOT_RUN = 127, 126


def main() -> None:
    die_with(int(sys.argv[1]), signal.SIGTERM)
    command = sys.argv[2:]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"hangdog: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN)


if __name__ == "__main__":
    main()
