"""How long a job stands from an eviction to its first step, with spares as they are, tested when needed, or made ready ahead.

    python bench/spares [--repetitions 3] [--mib 512]    some 20 minutes of two cores, and four times as many MiB of disk

`hangdog run` trains a job of two machines of one rank, played by processes of this host, with torchrun over gloo. Before a
machine's rank starts, its image must be there: an archive of --mib MiB that is unpacked, as a container's layers are. One
machine fails, a stop-time test convicts it, and the spare takes its place. Times are from the history of `hangdog run`:
from the moment at which the failure is known to the first step after it.
"""

import argparse
import json
import os
import secrets
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TRAINER = Path(__file__).with_name("train.py")
#: The job's steps, and the one after which a machine may fail.
STEPS, STRIKE = 1_000_000, 20
#: A test of a spare takes some 10 s on two idle cores; this is for busy ones. Seconds.
PATIENCE_S = 900.0
LEVEL = ("--spare-level", "1", "--spare-budget", "10m")
#: Which options each kind of run has; `warm` stands for the command that unpacks the image on the spare.
RUNS: Mapping[str, tuple[str, ...]] = {
    "untested": (),
    "tested when needed": LEVEL,
    "tested ahead": (*LEVEL, "--spare-ahead"),
    "tested and warmed ahead": (*LEVEL, "--spare-ahead", "warm"),
}
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "{machines}", "--node-rank", "{index}"),
    *("--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", "{port}"),
)


def pack(archive: Path, mib: int) -> None:
    """An image: files of a MiB each, which do not compress, as those of a trainer's libraries hardly do."""
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        for number in range(mib):
            file = archive.with_name(f"layer-{number}")
            file.write_bytes(secrets.token_bytes(1 << 20))
            packed.add(file, file.name)
            file.unlink()


def unpack(folder: Path) -> str:
    """A command of a shell that brings the image to the machine $0, if it is not there yet."""
    return f"test -d {folder}/$0 || {{ mkdir {folder}/$0.part && tar -xzf {folder}/image.tar.gz -C {folder}/$0.part && mv {folder}/$0.part {folder}/$0; }}"


def one_run(folder: Path, options: Sequence[str]) -> dict[str, float]:
    """Seconds of one eviction: until the job is started again, and until its first step."""
    state = folder / "state"
    warm = ("--warm-spare", shlex.join(["sh", "-c", unpack(folder), "{machine}"]))
    words = [word for option in options for word in (warm if option == "warm" else (option,))]
    job = ("sh", "-c", f'{unpack(folder)}; exec "$@"', "{machine}", *TORCHRUN)
    with (folder / "said").open("wb") as said:
        running = subprocess.Popen(
            [
                *(sys.executable, "-m", "hangdog", "run", "--state", str(state), "--grace", "1s"),
                *("--machine", "node-0", "--machine", "node-1", "--spare", "node-2", "--on-diagnose", "echo node-1"),
                *(*words, "--", *job, str(TRAINER), str(folder), str(STEPS), str(STRIKE)),
            ],
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    try:
        wanted = {"spare-tested"} if "--spare-ahead" in options else set[str]()
        wanted |= {"spare-warmed"} if "warm" in options else set()
        until(lambda: wanted <= {one["entry"] for one in history(state)} and bool(moments(state)), running, folder)
        (folder / "ready").touch()
        until(lambda: len(moments(state)) == 4, running, folder)
    finally:
        running.terminate()
        running.wait()
    _, failed, began, stepped = moments(state)
    return {"until started": began - failed, "until the first step": stepped - failed}


def history(state: Path) -> list[dict[str, Any]]:
    path = state / "history.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def moments(state: Path) -> list[float]:
    """Of the first step, the failure, the second start and the first step after it; as many as there are."""
    entries = history(state)
    found = [one["at"] for one in entries if one["entry"] == "progressed"][:1]
    for kind, which in (("troubled", 0), ("began", 1), ("progressed", 1)):
        found += [one["at"] for one in entries if one["entry"] == kind][which : which + 1]
    return found


def until(true: Any, running: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Waits; raises RuntimeError where it comes to nothing."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > end or running.poll() is not None:
            raise RuntimeError((folder / "said").read_text())
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each kind")
    parser.add_argument("--mib", type=int, default=512, help="size of the image that a machine needs")
    parser.add_argument("--kind", choices=RUNS, action="append", help="only this kind; may be repeated")
    asked = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in asked.kind or RUNS}
    with tempfile.TemporaryDirectory(prefix="hangdog-spares-") as name:
        pack(Path(name) / "image.tar.gz", asked.mib)
        for number in range(asked.repetitions):
            for at, (kind, runs) in enumerate(found.items()):  # in turn: the load of the host changes
                folder = Path(name) / f"run-{number}-{at}"
                folder.mkdir()
                (folder / "image.tar.gz").symlink_to(folder.parent / "image.tar.gz")
                runs.append(one_run(folder, RUNS[kind]))
                shutil.rmtree(folder)
                seconds = ", ".join(f"{what} {value:.1f} s" for what, value in runs[-1].items())
                print(f"{kind}: {seconds}; load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"\n{'spares':26} {'until started':>24} {'until the first step':>24}   (median; least to most)")
    for kind, runs in found.items():
        cells = []
        for what in ("until started", "until the first step"):
            values = [run[what] for run in runs]
            cells.append(f"{statistics.median(values):.1f}; {min(values):.1f} to {max(values):.1f}")
        print(f"{kind:26} {cells[0]:>24} {cells[1]:>24}")


if __name__ == "__main__":
    main()
