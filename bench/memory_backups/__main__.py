"""How long a job takes to bring its state back from other machines' memory, beside loading it from disk with DCP.

    python bench/memory_backups [--mib 384]        some minutes, and as many MiB of disk

Four machines of two ranks, played by processes of this host, train a model with FSDP over gloo. All ranks are killed, with the
holders of one machine, then of two of one parallel group, then of two that held both copies of a shard. The files of the
checkpoint are dropped from the page cache before they are loaded.
"""

import argparse
import json
import multiprocessing
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

from hangdog.backup.holder_client import Membership, end, near
from hangdog.backup.wire import KEY, BackupFailed
from hangdog.demo.conductor import free_port
from hangdog_models.planning.backups import place
from hangdog_models.topology import Layout, build

PER_MACHINE = 2
MACHINES = 4
#: What is lost and how many of its two copies of a shard that takes: two data-parallel peers none, a machine and its holder both.
LOSSES = {"one machine": (0,), "two machines of one group": (0, 1), "two machines with both copies": (0, 3)}


def placed() -> tuple[int, ...]:
    """Where `hangdog plan backups --tp 2 --dp 2 --pp 2 --gpus-per-machine 2` puts the backups."""
    layout = Layout(sizes={"tp": 2, "dp": 2, "pp": 2}, ranks_per_machine=PER_MACHINE)
    return tuple(int(rank) for rank in place(build(layout, None)[0]).holder)


def start(shape: Any, first: bool) -> list[dict[str, Any]]:
    """Starts all ranks, takes what each tells, and kills them."""
    from memory_backups.ranks import train

    context = multiprocessing.get_context("fork")  # torch is loaded once
    started = []
    try:
        for rank in range(len(shape.machines)):
            ours, theirs = context.Pipe()
            process = context.Process(target=train, args=(shape, rank, first, theirs), daemon=True)
            process.start()
            theirs.close()
            started.append((process, ours))
        return [ours.recv() for _, ours in started]
    finally:
        for process, ours in started:
            process.kill()
            process.join()
            ours.close()


def lose(member: Membership, machine: str) -> None:
    """Ends the machine's holder, where one is."""
    try:
        with near(member, machine) as line:
            end(line)
    except (OSError, BackupFailed):
        pass


def measure(mib: int, folder: Path) -> list[dict[str, Any]]:
    """One row for each loss."""
    from memory_backups.ranks import JobShape

    os.environ[KEY] = secrets.token_hex(16)
    rows = []
    for number, (name, lost) in enumerate(LOSSES.items()):
        member = Membership(os.environ[KEY].encode(), f"bench-{number}")
        machines = [f"m{rank // PER_MACHINE}" for rank in range(MACHINES * PER_MACHINE)]
        try:
            shape = JobShape(member.job, tuple(machines), placed(), free_port(), mib, folder / str(number))
            kept = start(shape, first=True)
            for at in lost:
                lose(member, f"m{at}")
            spared = tuple(f"spare{one}" if int(one[1:]) in lost else one for one in machines)
            again = JobShape(member.job, spared, placed(), free_port(), mib, folder / str(number))
            back = start(again, first=False)
            rows.append(row(name, kept, back))
        finally:
            for machine in {*machines, *(f"spare{one}" for one in machines)}:
                lose(member, machine)
    return rows


def row(name: str, kept: Sequence[dict[str, Any]], back: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The slowest rank counts: all wait for it."""
    digests = [one["digest"] for one in kept]
    slowest = {key: max(one[key] for one in kept) for key in ("held_up_s", "copied_s", "save_s")}
    slowest |= {key: max(one[key] for one in back) for key in ("restore_s", "load_s")}
    return slowest | {
        "lost": name,
        "kept": all(one["kept"] for one in kept),
        "steps": [one["step"] for one in back],
        "equal": [one["digest"] for one in back] == digests,
        "untouched": all(one["digest"] == one["before"] for one in back),
        "from_disk": [one["from_disk"] for one in back] == digests,
        "problem": next((one["problem"] for one in (*kept, *back) if one["problem"]), ""),
    }


def main() -> None:
    """Prints a row for each loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=384, help="size of model and optimizer together")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(asked.mib, Path(folder))
    if asked.format == "json":
        print(json.dumps(rows))
        return
    print(f"{'lost':30} {'held up':>8} {'copied':>7} {'restore':>8} {'DCP save':>9} {'DCP load':>9}  bytes")
    for one in rows:
        times = f"{one['held_up_s']:8.2f} {one['copied_s']:7.2f} {one['restore_s']:8.2f} {one['save_s']:9.2f} {one['load_s']:9.2f}"
        print(f"{one['lost']:30} {times}  {'equal' if one['equal'] else one['problem']}")


if __name__ == "__main__":
    main()
