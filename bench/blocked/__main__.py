"""Real training jobs of four ranks, one of which blocks in a call of plain Python: recorded by `hangdog capture`, and judged.

    python bench/blocked record [CALL ...]     play each and record it anew: half a minute each (pyzmq for two of them)
    python bench/blocked judge [CALL ...]      print the verdict on each recording

Each rank is shown as a machine of its own. All are judged as after five minutes: nothing in them changes until then. Right is
a verdict that names the rank, evicts nobody, and has an accepted kind. The recordings are in tests/recordings/blocked.
"""

import argparse
import io
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from blocked.calls import CALLS
from blocked.verdicts import RECORDINGS, judge, wrong
from hangdog_models.views.first_line import headline

ROOT = Path(__file__).resolve().parents[2]
TRAINER = Path(__file__).with_name("train.py")
WORLD, BEGINS_S, SETTLES_S = 4, 120.0, 4.0
_MACHINES = '[machines]\n"node-0" = "0"\n"node-1" = "1"\n"node-2" = "2"\n"node-3" = "3"\n'


def record(call: str) -> None:
    """Plays one call and writes its recording; raises RuntimeError where the trainers do not come so far."""
    with tempfile.TemporaryDirectory(prefix="hb-") as name:
        folder = Path(name)
        port = str(20000 + os.getpid() % 10000)
        trainers = [
            subprocess.Popen(
                [sys.executable, str(TRAINER)],
                env=os.environ
                | {
                    "CALL": call,
                    "FOLDER": name,
                    "OMP_NUM_THREADS": "1",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port,
                }
                | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD)},
                start_new_session=True,
            )
            for rank in range(WORLD)
        ]
        try:
            until = time.monotonic() + BEGINS_S
            while not (folder / "stuck").exists():
                if time.monotonic() > until or any(one.poll() is not None for one in trainers):
                    raise RuntimeError(f"{call}: the trainers did not get there")
                time.sleep(0.2)
            time.sleep(SETTLES_S)
            pids = [word for one in trainers for word in ("--pid", str(one.pid))]
            capture = [sys.executable, "-m", "hangdog", "capture", "-o", f"{name}/all.tar.gz", *pids]
            subprocess.run(capture, check=True, cwd=ROOT)
        finally:
            for one in trainers:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()
        keep(folder / "all.tar.gz", RECORDINGS / f"{call}.tar.gz", name)


def keep(whole: Path, path: Path, folder: str) -> None:
    """Writes what a verdict needs of a capture, with the paths of another machine, and each rank on one of its own."""
    places = {
        folder: "/scratch/run",
        str(ROOT / "bench"): "/opt/train",
        sys.prefix: "/opt/venv",
        sysconfig.get_paths()["stdlib"]: "/usr/local/lib/python3.11",
        sys.base_prefix: "/usr/local",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as kept:
        for name, text in _files(whole):
            for here, there in places.items():
                text = text.replace(here, there)
            if name == "job.toml":
                text = re.sub(r"\[machines\]\n.*", _MACHINES, text, flags=re.DOTALL)
            data = text.encode()
            member = tarfile.TarInfo(f"bundle/{name}")
            member.size = len(data)
            kept.addfile(member, io.BytesIO(data))


def _files(whole: Path) -> Iterator[tuple[str, str]]:
    """The job, its rounds and their processes; nothing of the machine that it ran on."""
    with tarfile.open(whole) as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            file = archive.extractfile(member)
            if file is not None and (name in ("job.toml", "rounds.toml") or name.startswith("round-")):
                yield name, file.read().decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["record", "judge"])
    parser.add_argument("calls", nargs="*", metavar="CALL", help=", ".join(CALLS))
    options = parser.parse_args()
    if unknown := set(options.calls) - set(CALLS):
        parser.error(f"there is no call {', '.join(sorted(unknown))}")
    failed = 0
    for call in options.calls or CALLS:
        if options.do == "record":
            record(call)
        verdict = judge(call)
        faults = wrong(call, verdict)
        failed += bool(faults)
        print(f"{call:14} {'WRONG: ' + '; '.join(faults) if faults else 'right':8} {headline(verdict)}")
    print(f"{len(options.calls or CALLS) - failed} of {len(options.calls or CALLS)} are right")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
