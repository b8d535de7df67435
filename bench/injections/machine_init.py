"""The first process of a machine: starts the commands that it is given, each ended by `--then--`, and lives as long as they do."""

import argparse
import os
import subprocess


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs=argparse.REMAINDER, help="words of commands, each command ended by --then--")
    command: list[str] = []
    for word in parser.parse_args().commands:
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
