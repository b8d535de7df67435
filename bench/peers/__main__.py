"""Analysers of flight recorder dumps side by side: hangdog, PyTorch's `torchfrtrace`, and `fr_attribution` of NVIDIA's nvidia-resiliency-ext.

    make torch                                  PyTorch with its torchfrtrace, in hangdog's environment
    python bench/peers install                  NVIDIA's package, into .venv-peers
    python bench/peers judge CORPUS             print whom each names in every set of dumps, in how many seconds and MiB

CORPUS is a folder with `nvrx`, `gloo`, `public` and `straggler` in it: recorded sets whose guilty ranks are known. It is no
part of this repository. Every analyser is started by its own command line on a folder of `_dump_<rank>` files, and gets
nothing but these; of the slow jobs hangdog gets two such moments, because it takes two to see that a job moves.

Named are: by hangdog the suspects of 0.5 or more; by torchfrtrace the ranks that it prints as missing or as culprits; by
fr_attribution the missing ranks of its last table. Exit status: 1 where hangdog is behind one of them.
"""

import argparse
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from peers.analysers import analysers
from peers.environment import hangdog_version, install, nvrx_version, torch_version, torchfrtrace
from peers.recordings import recordings
from peers.table import Row, all_named, innocents, print_head, print_row, print_summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["install", "judge"])
    parser.add_argument("corpus", type=Path, nargs="?", help="the folder of recorded sets")
    parser.add_argument("--torchfrtrace", type=Path, default=torchfrtrace(), help="PyTorch's analyser, if elsewhere")
    parser.add_argument("--only", help="recordings with this in their names")
    options = parser.parse_args()
    if options.do == "install":
        sys.exit(install())
    if options.corpus is None:
        parser.error("`judge` takes the folder of recorded sets")
    if not options.torchfrtrace.exists():
        sys.exit(f"{options.torchfrtrace} is missing: make torch")
    if not nvrx_version():
        sys.exit("fr_attribution is missing: python bench/peers install")
    known = analysers(options.torchfrtrace)
    names = [one.name for one in known]
    print(
        f"hangdog {hangdog_version()}, torchfrtrace of PyTorch {torch_version(options.torchfrtrace)}, "
        f"fr_attribution of nvidia-resiliency-ext {nvrx_version()}\n"
    )
    rows: list[Row] = []
    print_head(names)
    with tempfile.TemporaryDirectory(prefix="hangdog-peers-") as scratch:
        for recording in recordings(options.corpus, Path(scratch)):
            if options.only is None or options.only in recording.name:
                rows.append((recording, {one.name: one.asked(recording, Path(scratch)) for one in known}))
                print_row(rows[-1], names)
    if not rows:
        sys.exit("no such recording")
    print()
    print_summary(rows, names)
    sys.exit(_behind(rows, names))


def _behind(rows: list[Row], names: list[str]) -> bool:
    """Whether hangdog names fewer of the guilty, or more innocents, than another one does, on dumps of one backend."""
    for backend in {recording.backend for recording, _ in rows}:
        score = {name: [0, 0] for name in names}
        for recording, answers in rows:
            if recording.backend == backend:
                for name, answer in answers.items():
                    score[name][0] += bool(recording.guilty) and all_named(recording, answer)
                    score[name][1] -= len(innocents(recording, answer))
        found, spared = score[names[0]]
        if any(theirs[0] > found or (theirs[0] == found and theirs[1] > spared) for theirs in score.values()):
            return True
    return False


if __name__ == "__main__":
    main()
