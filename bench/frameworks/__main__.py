"""Trainers of real frameworks on the CPU: busy or broken, recorded by the agent's own capture, and judged.

    python bench/frameworks install                      make the environment that the trainers run in
    python bench/frameworks record [--only megatron]     play every phase and fault and record them anew, some minutes each
    python bench/frameworks judge                        print the verdict on every recording, and whether it is right
    python bench/frameworks live [--fault sigstop]       play them beside a real server and real agents, and print how soon each is noticed
    python bench/frameworks misses                       list what is wrong now in known_misses.toml, after new recordings

A recording is a bundle of three looks, five seconds apart, and what is expected of a verdict, in tests/recordings/frameworks.
"""

import argparse
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from frameworks.cases import CASES, FAULTS, PHASES
from frameworks.environment import FRAMEWORKS, install
from frameworks.live import run_live
from frameworks.record import record_all
from frameworks.table import print_table, write_misses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["install", "record", "judge", "live", "misses"])
    parser.add_argument("--only", action="append", choices=FRAMEWORKS, help="one framework; may be repeated")
    parser.add_argument("--case", action="append", choices=CASES, help="one phase or fault; may be repeated")
    for option, some in (("--phase", PHASES), ("--fault", FAULTS)):
        names = [case.name for case in some]
        parser.add_argument(option, dest="case", action="append", choices=names, help="one of --case; may be repeated")
    options = parser.parse_args()
    frameworks = [FRAMEWORKS[name] for name in options.only or FRAMEWORKS]
    cases = [CASES[name] for name in options.case or CASES]
    failed = 0
    if options.do == "install":
        failed = install()
    elif options.do == "misses":
        print(f"{write_misses()} known misses")
    elif options.do in ("record", "live"):
        play = record_all if options.do == "record" else run_live
        with tempfile.TemporaryDirectory(prefix="hf-") as folder:
            failed = play(frameworks, cases, Path(folder))
    if options.do in ("record", "judge"):
        failed += print_table(frameworks, cases)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
