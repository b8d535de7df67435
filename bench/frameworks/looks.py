"""Looks at a job with the agent's own capture, and writes what it saw as an evidence bundle."""

import io
import json
import os
import sys
import sysconfig
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from frameworks.environment import HOME, ROOT, TRAINERS, WORLD, Framework
from hangdog.demo.evidence import write_trace
from hangdog.evidence.packed import zst
from hangdog_agent.capture import pyspy
from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import Process, ProcessRole, RankProcesses, find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.procfs import Proc
from hangdog_models.ranks import Rank
from hangdog_models.stack import Reason

#: Looks at a job, and the time between them in seconds.
LOOKS, INTERVAL_S = 3, 5.0
NAME = "frameworks"
#: The three looks are much the same: the highest level finds that, in a tenth of a second.
PACKING = 19


class Announcing(Proc):
    """A process table in which all ranks say so: of those that do not the agent keeps no account."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        super().__init__()
        self._ranks = {pid: rank for rank, pid in pids.items()}

    def raw(self, pid: int, name: str) -> bytes | Reason:
        read = super().raw(pid, name)
        if name == "environ" and pid in self._ranks and isinstance(read, bytes):
            return b"RANK=%d\0WORLD_SIZE=%d\0" % (self._ranks[pid], WORLD) + read
        return read


def discovered(pids: Mapping[int, int]) -> tuple[int, ...]:
    """The ranks that the agent finds by itself, as what they are."""
    processes = ProcessTable(Proc()).take()
    family = {member.process.pid for member in members(processes, pids)}
    for process in processes:  # launchers, up to ourselves; no other job that runs here
        if process.pid in family:
            family |= _above(process, processes)
    found = {member.process.pid: member for member in find(one for one in processes if one.pid in family)}
    own = {rank: found[pid] for rank, pid in pids.items() if pid in found}
    return tuple(rank for rank, member in own.items() if member.kind is ProcessRole.TRAINER and member.rank == rank)


def record(framework: Framework, name: str, pids: Mapping[int, int], folder: Path, bundle: Path) -> None:
    """Looks at all processes of a job some times; writes a bundle in which no path of this machine is left."""
    table = ProcessTable(Announcing(pids))
    tools = Tools(Proc(), pyspy.load(), CaptureSettings())
    series = CaptureSeries(NAME, lambda: members(table.take(), pids), tools)
    bundle.mkdir()
    (bundle / "job.toml").write_text(_job(framework, name))
    (bundle / "rounds.toml").write_text(f"interval_s = {INTERVAL_S}\n")
    for number in range(LOOKS):
        began = time.monotonic()
        for trace in series.look():
            place = bundle / f"round-{number}" / f"machine-node-{trace.rank}"
            place.mkdir(parents=True, exist_ok=True)
            write_trace(place, json.loads(elsewhere(json.dumps(msgspec.to_builtins(trace)), folder)))
        if number < LOOKS - 1:
            time.sleep(max(0.0, began + INTERVAL_S - time.monotonic()))


def packed(bundle: Path, archive: Path) -> None:
    """Packs a bundle; the same files give the same archive."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path in sorted(path for path in bundle.rglob("*") if path.is_file()):
            tar.add(path, str(path.relative_to(bundle)), filter=plain)
    archive.write_bytes(zst.zstd.compress(content.getvalue(), PACKING))


def members(processes: Sequence[Process], pids: Mapping[int, int]) -> list[RankProcesses]:
    """The ranks and what runs below them: not every starter tells ranks in a way that can be seen from outside."""
    ranks = {pid: rank for rank, pid in pids.items()}
    own = {process.pid: process for process in processes}
    members = []
    for process in processes:
        above = process
        while above.pid not in ranks and above.parent in own and above.parent != above.pid:
            above = own[above.parent]
        if above.pid in ranks:
            kind = next((one for one in _kinds(process)), ProcessRole.CHILD)
            kind = ProcessRole.TRAINER if process.pid in ranks else kind
            members.append(RankProcesses(NAME, Rank(ranks[above.pid]), kind, process, WORLD, owner=process.owner))
    return sorted(members, key=lambda member: (member.rank, member.kind is not ProcessRole.TRAINER, member.process.pid))


def _above(process: Process, processes: Sequence[Process]) -> set[int]:
    table = {one.pid: one for one in processes}
    above: set[int] = set()
    while process.parent in table and process.parent != os.getpid() and process.parent not in above:
        process = table[process.parent]
        above.add(process.pid)
    return above


def _kinds(process: Process) -> Sequence[ProcessRole]:
    return (
        [ProcessRole.DATALOADER] if process.comm == "pt_data_worker"
        else [ProcessRole.COMPILE] if any("compile_worker" in argument for argument in process.arguments[:4])
        else []
    )  # fmt: skip


def _job(framework: Framework, name: str) -> str:
    sizes = "".join(f"{dim} = {size}\n" for dim, size in framework.sizes.items())
    return (
        f'[job]\nid = "{name}"\nworld_size = {WORLD}\nframework = "{framework.hint}"\n\n'
        f"[topology]\n{sizes}gpus_per_node = 1\n"
    )


def elsewhere(text: str, folder: Path) -> str:
    """Written JSON with the paths of another machine."""
    places = {
        str(folder): "/scratch/run",
        str(TRAINERS): "/opt/train",
        str(HOME): "/opt/venv",
        str(HOME.resolve()): "/opt/venv",  # one environment may serve several checkouts
        sysconfig.get_paths()["stdlib"]: "/usr/local/lib/python3.11",
        sys.base_prefix: "/usr/local",
        "/tmp/ray": "/scratch/ray",
    }
    for here, there in places.items():
        text = text.replace(json.dumps(here)[1:-1], there)
    left = [word for word in (str(ROOT), os.environ.get("HOME", ""), "/tmp/") if len(word) > 1 and word in text]
    if left:
        at = text.index(left[0])
        raise AssertionError(f"a path of this machine is left: {text[max(0, at - 80) : at + 120]}")
    return text
