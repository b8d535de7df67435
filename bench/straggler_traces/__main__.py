"""Published traces of slow jobs as flight recorder dumps with times: written, or judged beside their publishers' analysis.

    python bench/straggler_traces convert TRACES OUT     write a bundle of each job: OUT/AR, OUT/SE, OUT/ST
    python bench/straggler_traces judge TRACES           write them elsewhere, run `hangdog triage` on each, print a table

TRACES is the folder `data` of github.com/ByteDance-Seed/StragglerAnalysis ("Understanding Stragglers in Large Model
Training Using What-if Analysis", OSDI 2025), which is not part of this repository. AR is slow because of one worker that
was slowed on purpose; nobody is guilty in SE (sequences of uneven length) and ST (a last stage with more to do).
Exit status of `judge`: 1 where the slowed worker is not named first, or anybody else is named or evicted.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from hangdog_models.ranks import parse_ranks
from straggler_traces.dumps import write
from straggler_traces.trace import TRUTH, read

HANGDOG = (sys.executable, "-m", "hangdog", "triage", "--format", "json")
HEADER = (
    "| job | slowdown | of it one worker (Mw) | last stage (Ms) | slowest replica | slowest stage | guilty | hangdog | first suspect | evicted | right | s |\n"
    "|---|---:|---:|---:|---|---|---|---|---|---|---|---:|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["convert", "judge"])
    parser.add_argument("traces", type=Path, help="the folder that holds trace-AR.parquet and the others")
    parser.add_argument("out", type=Path, nargs="?", help="where `convert` writes the bundles")
    parser.add_argument("--only", choices=TRUTH, action="append", help="one of the traces; may be repeated")
    parser.add_argument("--untimed", action="store_true", help="dumps of a recorder without TORCH_NCCL_ENABLE_TIMING")
    parser.add_argument("--machines", action="store_true", help="a job.toml, too: each worker has a machine of its own")
    options = parser.parse_args()
    if (options.do == "convert") is not (options.out is not None):
        parser.error("`convert` takes the folder to write to, `judge` does not")
    names = options.only or list(TRUTH)
    if options.do == "convert":
        for name in names:
            _bundle(options.traces, name, options.out / name, not options.untimed, options.machines)
        return
    print(HEADER)
    right = True
    with tempfile.TemporaryDirectory(prefix="hangdog-traces-") as scratch:
        for name in names:
            bundle = Path(scratch) / name
            _bundle(options.traces, name, bundle, not options.untimed, options.machines)
            row, correct = _judged(options.traces, name, bundle)
            print(f"| {row} |", flush=True)
            right = right and correct
    sys.exit(not right)


def _bundle(traces: Path, name: str, folder: Path, timed: bool, machines: bool) -> None:
    trace = read(traces, name)
    write(trace, folder, timed=timed)
    if (
        machines
    ):  # which ranks share one is not published; a worker's own do, for tensor groups are kept inside a machine
        text = f'[job]\nid = "{name}"\n\n[topology]\ngpus_per_node = {trace.shape.ranks_of_worker}\n'
        (folder / "job.toml").write_text(text, encoding="utf-8")


def _judged(traces: Path, name: str, bundle: Path) -> tuple[str, bool]:
    """A row of the table, and whether hangdog is right."""
    began = time.monotonic()
    ran = subprocess.run([*HANGDOG, str(bundle)], capture_output=True, text=True, check=False)
    took_s = time.monotonic() - began
    if ran.returncode not in (0, 1, 2):
        sys.exit(ran.stderr)
    verdict = json.loads(ran.stdout)
    guilty, _ = TRUTH[name]
    first = verdict["suspects"][0] if verdict["suspects"] else None
    named = parse_ranks(first["ranks"]) if first and first["probability"] >= 0.5 else ()
    evicted = verdict["evict"]["machines"]
    correct = (named == guilty and verdict["verdict"] == "slow") if guilty else not named and not evicted
    cells = (
        name, *_published(traces, name), f"ranks {guilty[0]}-{guilty[-1]}" if guilty else "nobody",
        verdict["verdict"], f"{first['ranks']} ({first['probability']:.0%})" if first else "-",
        ", ".join(evicted) or "-", "yes" if correct else "**no**", f"{took_s:.1f}",
    )  # fmt: skip
    return " | ".join(cells), correct


def _published(traces: Path, name: str) -> Iterator[str]:
    """What the publishers' analysis says: how slow, how much of it goes with the slowest workers or the last stage, and where."""
    result, worker, stage = (
        json.loads((traces / f"{kind}-{name}.json").read_text(encoding="utf-8")) for kind in ("result", "mw", "ms")
    )
    yield f"{result['blocking_slowdown']:.2f}"
    yield f"{worker['Mw']:.2f}"
    yield f"{stage['Ms']:.2f}"
    for split in ("dp_rank", "stage"):
        slowest = max(result[f"blocking_decompose_by_{split}"].items(), key=lambda one: one[1])
        yield f"{slowest[0]} ({slowest[1]:.2f})"


if __name__ == "__main__":
    main()
