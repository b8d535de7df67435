"""How long `hangdog triage` takes on a folder of many dumps, from its start to its verdict.

    python bench/triage.py [RANKS ...]        default: 1024 16384; half a minute and 700 MiB of disk

Each rank has one file as `py-spy dump --json` writes it: nine threads of some 28 frames, of the hung job of `bench/scale`.
Writing them is not counted. `ratio` is to the row before: with sixteen times the files, about 16 means linear.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent)

from hangdog.evidence.write_bundle import files
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.topology import Layout
from hangdog_server.incidents.replay import Replayed
from scale.stacks import PER_MACHINE, STAGES, TENSOR
from scale.stacks import Job as Hung

#: The exit statuses of a triage that came to a verdict.
WELL = (0, 1, 2)


def write(folder: Path, ranks: int) -> int:
    """Writes the dumps of one look at a job of so many ranks; how many bytes they have."""
    job = Hung(ranks, seed=1)
    machines = range(ranks // PER_MACHINE)
    traces = tuple(trace for at in machines for trace in job.machine(at, 0, moving=False))
    sizes = {"tp": TENSOR, "dp": ranks // TENSOR // STAGES, "pp": STAGES}
    layout = Layout(sizes=sizes, ranks_per_machine=PER_MACHINE)
    written = 0
    for name, content in files(Replayed(Snapshot(Job("bench"), (Round(0, traces),)), layout, ())):
        if not name.endswith(".proc.json"):
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            written += path.write_bytes(content)
    return written


def main() -> None:
    """Prints a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", nargs="*", type=int, default=[1024, 16384], help="sizes of the job, multiples of 64")
    sizes = parser.parse_args().ranks
    print(f"{'ranks':>8} {'MiB':>6} {'seconds':>8} {'CPU s':>6} {'ms/rank':>8} {'ratio':>6} {'peak MiB':>8} verdict")
    before = 0.0
    for ranks in sizes:
        with tempfile.TemporaryDirectory() as folder:
            size = write(Path(folder), ranks)
            began = time.monotonic()
            asked = subprocess.Popen(
                (sys.executable, "-m", "hangdog", "triage", folder, "--format", "json"), stdout=subprocess.PIPE
            )
            said = asked.stdout.read() if asked.stdout is not None else b""
            _, status, used = os.wait4(asked.pid, 0)
            took = time.monotonic() - began
        if os.waitstatus_to_exitcode(status) not in WELL:
            raise SystemExit(f"hangdog triage ended with {os.waitstatus_to_exitcode(status)}")
        verdict = json.loads(said)
        ratio = f"{took / before:6.1f}" if before else "     -"
        print(
            f"{ranks:8} {size / (1 << 20):6.0f} {took:8.1f} {used.ru_utime + used.ru_stime:6.1f} {took / ranks * 1e3:8.2f}"
            f" {ratio} {used.ru_maxrss >> 10:8} {verdict['verdict']} {verdict['confidence']:.2f}",
            flush=True,
        )
        before = took


if __name__ == "__main__":
    main()
