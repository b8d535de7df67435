"""The first process of a machine: starts the commands that it is given, each ended by `--then--`, and lives as long as they do."""

import os
import subprocess
import sys


def main() -> None:
    if "--help" in sys.argv[1:2]:
        print(f"{__doc__}\n\n    python machine_init.py COMMAND... --then-- [COMMAND... --then--]")
        return
    command: list[str] = []
    for word in sys.argv[1:]:
        if word == "--then--":
            subprocess.Popen(command, start_new_session=True)
            command = []
        else:
            command.append(word)
    while True:  # what ends is reaped, as an init does; it is no reason to end the machine
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
