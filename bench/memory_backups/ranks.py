"""A rank of a real FSDP job that is killed and started again: what it trains, keeps, brings back, and how long that takes."""

import hashlib
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from hangdog.backup.backups import Backups, BackupSettings
from hangdog.backup.rank_group import TorchGroup
from hangdog.backup.state_bytes import pack

#: Width of a layer: 16 MiB of parameters, and twice that for Adam.
WIDTH = 2048
LAYER_MIB = 3 * 4 * WIDTH * WIDTH >> 20


@dataclass(frozen=True)
class JobShape:
    """One start of the job."""

    job: str
    machines: tuple[str, ...]
    placement: tuple[int, ...]
    port: int
    mib: int
    folder: Path


def train(shape: JobShape, rank: int, first: bool, line: Connection) -> None:
    """Trains and keeps at the first start, or brings back; tells what it has done and then waits to be killed."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(len(shape.machines))}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(shape.port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    state = _state(shape, seed=1 if first else 2 + rank)
    # a machine of a quarter of the ranks holds four times its own part; one layer at the least is trained
    settings = BackupSettings(shape.job, 2 * max(shape.mib, LAYER_MIB) << 20, shape.machines[rank])
    backups = Backups(TorchGroup(), shape.placement, settings)
    line.send(_keeps(backups, state, shape.folder) if first else _restores(backups, state, shape.folder))
    with suppress(EOFError):
        line.recv()


def _state(shape: JobShape, seed: int) -> dict[str, Any]:
    """A model and its Adam after one step, sharded over all ranks."""
    torch.manual_seed(seed)
    layers = max(1, shape.mib // LAYER_MIB)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    mesh = init_device_mesh("cpu", (len(shape.machines),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(torch.randn(2, WIDTH)).square().mean().backward()
    optimizer.step()
    parameters, moments = get_state_dict(model, optimizer)
    return {"model": parameters, "optim": moments}


def _keeps(backups: Backups, state: dict[str, Any], folder: Path) -> dict[str, Any]:
    saved = _timed(lambda: dcp.save(state, checkpoint_id=folder))
    began = time.monotonic()
    kept = backups.keep(7, state)
    held_up = time.monotonic() - began
    whole = backups.finish()
    return {
        "kept": kept and whole,
        "problem": backups.problem,
        "save_s": saved,
        "held_up_s": held_up,
        "copied_s": time.monotonic() - began,
        "digest": _digest(state),
    }


def _restores(backups: Backups, state: dict[str, Any], folder: Path) -> dict[str, Any]:
    other = _digest(state)
    dist.barrier()
    began = time.monotonic()
    found = backups.restore(state)
    restored = time.monotonic() - began
    digest = _digest(state)
    _forget_cached(folder)
    dist.barrier()
    loaded = _timed(lambda: dcp.load(state, checkpoint_id=folder))
    return {
        "step": found.step if found else None,
        "problem": backups.problem,
        "restore_s": restored,
        "load_s": loaded,
        "digest": digest,
        "before": other,
        "from_disk": _digest(state),
    }


def _forget_cached(folder: Path) -> None:
    """The files of a checkpoint are read from the disk and not from the memory that they passed through."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _timed(act: Any) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def _digest(state: dict[str, Any]) -> str:
    return hashlib.sha256(pack(state, bytearray)).hexdigest()
