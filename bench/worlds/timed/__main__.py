"""Writes a world of timed incidents: cases whose truth is known, for `python bench/worlds` and `python bench/fit`.

    python bench/worlds/timed --cases N --seed S --out FOLDER [--first]

Jobs of nine kinds run in time, with one fault, two or none. Hosts run ahead of their devices, collectives join them, and
each look shows what the moment shows. The cases of a seed are the same on every machine. With `--first` only those kinds of
incidents are drawn that the world had when numbers were fitted with it. The folder must not be there yet.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # the package, which is two folders up, is found from there
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from worlds.timed.case import cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the cases; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=240, metavar="N", help="how many (240)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="which ones (1)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--first", action="store_true", help="only the kinds that numbers were fitted with")
    asked = parser.parse_args(arguments)
    if asked.cases < 1:
        parser.error("--cases: at least one")
    if asked.out.exists():
        parser.error(f"{asked.out} is there already")
    for at, _ in enumerate(cases(asked.out, asked.cases, asked.seed, first=asked.first), 1):
        if sys.stderr.isatty():
            print(f"\r{at} cases", end="", file=sys.stderr)
    print(f"{asked.cases} cases of seed {asked.seed} in {asked.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
