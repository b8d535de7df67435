"""How right `hangdog triage` is on a world made by somebody else: folders of evidence with what is expected of the verdict.

    python bench/worlds FOLDER [FOLDER ...] [--misses] [--calibration] [--format text|json]

Each folder holds cases; a case is a folder with `expected.toml` and the evidence beside it, or in `bundle/` or `bundle.tar.gz`. The
keys are those of the corpus: `verdict`, `must_include_ranks`, `must_include_any_ranks`, `must_include_machines`, `must_not_evict`,
`evict_at_most`. Cases are told apart by what their names say after the first `-`. `--calibration` also tells how true what is said
with a probability is, by the shipped table (bench/fit: by one fitted without the world). Exit status: 0, or 1 where a machine is
evicted that is not to be.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from hangdog_models.diagnosis.judge import diagnose
from worlds.calibration import calibrations, heads, lines
from worlds.case import of_folder
from worlds.score import score, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Judges the cases of the folders; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--misses", action="store_true", help="also list each case that is not right")
    parser.add_argument("--calibration", action="store_true", help="also who, why and whom to isolate, in ten bins")
    parser.add_argument("--format", choices=("text", "json"), default="text", dest="form")
    asked = parser.parse_args(arguments)
    results, verdicts = [], []
    for folder in asked.folders:
        for case in of_folder(folder, folder.name):
            verdict = diagnose(case.snapshot, case.topology)
            verdicts.append((case.want, verdict, case.topology))
            results.append(score(case.name, case.want, verdict, case.topology))
            if sys.stderr.isatty():
                print(f"\r{len(results)} cases", end="", file=sys.stderr)
    if not results:
        parser.error(f"no case (a folder with expected.toml) in {', '.join(map(str, asked.folders))}")
    if asked.form == "json":
        print(json.dumps([{**asdict(one), "right": one.right} for one in results], indent=1))
    else:
        print("\n".join(table(results)))
        for one in results if asked.misses else []:
            if not one.right:
                print(
                    f"{one.case}: {one.verdict} {one.said:.0%}" + (", evicts who is not to be" if one.innocent else "")
                )
        if asked.calibration:
            print("", *heads(), *lines("all", calibrations(verdicts)), sep="\n")
    return 1 if any(one.innocent for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
