"""Writes what the agents see of a demo's job as an evidence bundle that `hangdog triage` reads."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hangdog.demo.shape import MACHINES, RANKS_PER_MACHINE, SIZES
from hangdog_models.stack import TRAINER

#: Looks at the job: a second one tells a stuck rank from one that was merely seen in that place.
ROUNDS = 2
#: From one look to the next, in seconds; longer than a step of the job.
INTERVAL_S = 2.0

Capture = Callable[[str], Mapping[str, Any]]


def write_bundle(folder: Path, job: str, look: Capture, interval_s: float = INTERVAL_S) -> None:
    """Looks at the job through the agent of each machine, a few times, and writes all of it into `folder`.

    `look` answers what `hangdog-agent --once` prints on the machine it is given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.toml").write_text(job_toml(job, "fsdp", SIZES, RANKS_PER_MACHINE))
    (folder / "rounds.toml").write_text(f"interval_s = {interval_s}\n")
    for number in range(ROUNDS):
        began = time.monotonic()
        for machine in MACHINES:
            place = folder / f"round-{number}" / f"machine-{machine}"
            place.mkdir(parents=True, exist_ok=True)
            for seen in look(machine)["jobs"]:
                if seen["name"] == job:
                    for trace in seen["traces"]:
                        write_trace(place, trace)
        if number < ROUNDS - 1:
            time.sleep(max(0.0, began + interval_s - time.monotonic()))


def job_toml(job: str, framework: str, sizes: Mapping[str, int], ranks_per_machine: int) -> str:
    """What a bundle says of a job: `sizes` are its parallel sizes, fastest-varying first."""
    topology = "".join(f"{dim} = {size}\n" for dim, size in sizes.items())
    return (
        f'[job]\nid = "{job}"\nworld_size = {math.prod(sizes.values())}\nframework = "{framework}"\n\n'
        f"[topology]\n{topology}gpus_per_node = {ranks_per_machine}\n"
    )


def write_trace(place: Path, trace: Mapping[str, Any]) -> None:
    """Writes one process: its stacks, the kernel's view of it, and, when there are no stacks, why."""
    role = "" if trace["role"] == TRAINER else f".{trace['role']}"
    name = f"rank{trace['rank']}{role}"
    if trace["threads"]:
        dump = [_thread(trace["pid"], thread) for thread in trace["threads"]]
        (place / f"{name}.json").write_text(json.dumps(dump, indent=1))
    elif trace["missing"]:
        (place / f"{name}.error.txt").write_text(f"{trace['missing']['reason']}: {trace['missing']['words']}\n")
    if trace["state"]:
        (place / f"{name}.proc.json").write_text(json.dumps(trace["state"]))


def _thread(pid: int | None, thread: Mapping[str, Any]) -> dict[str, Any]:
    """A thread as `py-spy dump --json` writes it: frames from the innermost outwards."""
    return {
        "pid": pid,
        "thread_id": thread["tid"],
        "thread_name": thread["name"],
        "os_thread_id": thread["tid"],
        "active": thread["active"],
        "owns_gil": thread["gil"],
        "frames": _frames(thread["frames"]),
        "process_info": None,
    }


def _frames(frames: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": frame["function"],
            "filename": frame["file"],
            "module": frame["module"],
            "short_filename": frame["file"],
            "line": frame["line"],
            "locals": None,
        }
        for frame in reversed(frames)
    ]
