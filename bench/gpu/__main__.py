"""The proof on a GPU: capture, real NCCL jobs, machine tests, NVML and overhead, each measured once, in slices of some minutes.

    python bench/gpu --minutes 9 --out DIR        as much as fits; run it again with the same DIR for the rest
    python bench/gpu wheels DIR --for-python 3.12 fills DIR with what a Python with torch lacks, for --wheels DIR there
    python bench/gpu --dry --out DIR              all of it without a GPU: gloo, a fake NVML, stand-ins for device kernels
    python bench/gpu report --out DIR             writes the report anew

It needs Python 3.11 or newer with torch, and on a real GPU NCCL; root or not; no network. It never resets or reconfigures a
device. DIR/report.json and DIR/report.md hold the figures. Status 0: all done, nothing wrong; 1: all done, something wrong;
3: parts are left, run it again.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from gpu import environment

#: Set in the environment of the second start, under the interpreter that was made.
_MADE = "HANGDOG_GPU_PYTHON"
#: Left over for the report and for ending what runs. Seconds.
RESERVE_S = 5.0


def main() -> int:
    options = _options()
    if options.do == "wheels":
        environment.fetch(options.folder, options.for_python)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    began = float(os.environ.get("HANGDOG_GPU_BEGAN", time.monotonic()))
    if _MADE not in os.environ:
        _start_again(options, began)
    from gpu import report
    from gpu.kit import Journal, Stand, run
    from gpu.parts import all_parts

    journal = Journal(options.out / "journal.jsonl")
    if options.do == "report":
        report.write(options.out, journal)
        return 0
    with tempfile.TemporaryDirectory(prefix="hangdog-gpu-") as scratch:
        stand = Stand(Path(sys.executable), options.out, Path(scratch), options.dry, options.record)
        parts = [one for one in all_parts(stand) if _chosen(one.name, options.only)]
        if options.list:
            for one in parts:
                print(
                    f"{one.name:40} up to {one.expected_s:4.0f} s  {journal.latest()[one.name].outcome if one.name in journal.latest() else ''}"
                )
            return 0
        left = run(
            parts, stand, journal, began + options.minutes * 60 - RESERVE_S, lambda line: print(line, flush=True)
        )
    report.write(options.out, journal)
    if left:
        print(f"left for the next slice: {', '.join(left)}")
        return 3
    latest = journal.latest()
    return int(any(latest[one.name].wrong or latest[one.name].outcome == "failed" for one in parts))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python bench/gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", nargs="?", choices=["run", "wheels", "report"], default="run")
    parser.add_argument("folder", nargs="?", type=Path, help="wheels: where they go")
    parser.add_argument(
        "--for-python", default="3.12", metavar="VERSION", help="wheels: the Python there (default 3.12)"
    )
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="no part begins that would not end by then (default 9)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("gpu-proof"), help="where results are kept (default gpu-proof)"
    )
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="packages that this Python lacks")
    parser.add_argument("--dry", action="store_true", help="without a GPU")
    parser.add_argument("--record", action="store_true", help="keep each hang as a bundle in DIR/bundles")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="a family of parts, or one part; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="name the parts and what came of them; run none")
    options = parser.parse_args()
    if options.do == "wheels" and options.folder is None:
        parser.error("wheels: say which folder they go to")
    options.out = options.out.absolute()
    return options


def _chosen(name: str, only: Sequence[str] | None) -> bool:
    return not only or any(name == one or name.startswith(f"{one}/") for one in only)


def _start_again(options: argparse.Namespace, began: float) -> None:
    """Goes on under an interpreter that has everything; never returns."""
    python = Path(sys.executable)
    if options.wheels is not None:
        python = environment.make(
            Path(tempfile.gettempdir()) / f"hangdog-gpu-venv-{os.getuid()}", options.wheels.absolute()
        )
    if lacks := environment.missing(python):
        sys.exit(
            f"{python} cannot run the proof: {lacks}\nfill a folder with `python bench/gpu wheels DIR` and give it as --wheels DIR"
        )
    environ = os.environ | {_MADE: str(python), "HANGDOG_GPU_BEGAN": repr(began)}
    os.execve(python, [str(python), str(Path(__file__).parent), *sys.argv[1:]], environ)


if __name__ == "__main__":
    sys.exit(main())
