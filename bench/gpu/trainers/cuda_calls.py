"""A trainer that stands in one CUDA call after another, as ordered, and measures how steadily its own loop turns meanwhile.

    python cuda_calls.py PAGE [--dry]     with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT of a job of two

Rank 1 is the peer that does not come: it enters the collective only when the trainer is to leave it.
"""

import contextlib
import datetime
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpu.trainers.device import Device, StandIn, device
from gpu.trainers.page import Page, open_page
from gpu.trainers.turns import NAMES, At, Turns, number

#: How often a trainer without an order looks for one. Seconds.
IDLE_S = 0.005
#: A collective whose peer does not come is given up; the trainer is to leave it long before. Seconds.
GROUP_S = 90.0
#: What the trainer may take of the device while its allocator retries, what it fills of that, and what does not fit. Bytes.
LIMIT, BLOCK, BLOCKS, TOO_MUCH = 2 << 30, 128 << 20, 8, 4 << 30
#: What is copied, page-locked, and allocated at a turn. Bytes.
COPIED, LOCKED, ALLOCATED = 16 << 20, 16 << 20, 64 << 20


def _synchronize(where: Device, turns: Turns) -> None:
    """Behind a kernel that waits."""
    turns.begin_beside(where.release)
    where.hang()
    where.synchronize()


def _item(where: Device, turns: Turns) -> None:
    """One number of a result that a kernel holds back."""
    result = _ready(where)
    turns.begin_beside(where.release)
    where.hang()
    result.add_(1.0)
    if isinstance(where, StandIn):
        where.synchronize()
    result.item()


def _full_queue(where: Device, turns: Turns) -> None:
    """Launches behind a kernel that waits, until the device takes no more."""
    result = _ready(where)
    turns.begin_beside(where.release)
    where.hang()
    if isinstance(where, StandIn):
        where.synchronize()
    while not turns.over:
        result.add_(1.0)


def _collective(where: Device, turns: Turns) -> None:
    """An all-reduce that the peer does not enter."""
    result = _join(where)
    turns.begin_beside(where.release)
    work = dist.all_reduce(result, async_op=True)
    work.wait()
    where.synchronize()


def _launches(where: Device, turns: Turns) -> None:
    """Small kernels one after another."""
    result = _ready(where)
    turns.begin()
    while turns.go_on():
        result.add_(1.0)


def _graph(where: Device, turns: Turns) -> None:
    """A CUDA graph of twenty kernels, replayed again and again."""
    result = _ready(where)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL has threads of its own
        for _ in range(20):
            result.add_(1.0)
    turns.begin()
    while turns.go_on():
        graph.replay()
        where.synchronize()


def _retries(where: Device, turns: Turns) -> None:
    """An allocator at its limit: it frees what it cached, tries again, and fails."""
    torch.cuda.empty_cache()
    all_of_it = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + LIMIT) / all_of_it)
    turns.begin()
    try:
        while turns.go_on():
            kept = [torch.empty(BLOCK, dtype=torch.uint8, device=where.name) for _ in range(BLOCKS)]
            del kept
            with contextlib.suppress(torch.cuda.OutOfMemoryError):
                torch.empty(TOO_MUCH, dtype=torch.uint8, device=where.name)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


def _allocations(where: Device, turns: Turns) -> None:
    """Memory taken from the driver and given back."""
    turns.begin()
    while turns.go_on():
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(ALLOCATED))
        torch.cuda.empty_cache()


def _page_locks(where: Device, turns: Turns) -> None:
    """Pages of the host locked for the device and let go, as pinned memory is."""
    runtime, kept = torch.cuda.cudart(), torch.ones(LOCKED, dtype=torch.uint8)
    turns.begin()
    while turns.go_on():
        status = runtime.cudaHostRegister(kept.data_ptr(), LOCKED, 0)
        if int(status):
            raise RuntimeError(f"cudaHostRegister answers {status}")
        runtime.cudaHostUnregister(kept.data_ptr())


def _copies(where: Device, turns: Turns) -> None:
    """Copies of pageable memory to the device."""
    source = torch.ones(COPIED, dtype=torch.uint8)
    target = torch.empty(COPIED, dtype=torch.uint8, device=where.name)
    turns.begin()
    while turns.go_on():
        target.copy_(source)


Call = Callable[[Device, Turns], None]
CALLS: dict[str, Callable[[Device, Turns], None]] = {
    "synchronize": _synchronize,
    "full launch queue": _full_queue,
    "collective": _collective,
    "item": _item,
    "launches": _launches,
    "allocator retries": _retries,
    "page locks": _page_locks,
    "driver allocations": _allocations,
    "pageable copies": _copies,
    "graph replay": _graph,
}
#: What a device without CUDA can do of it; it computes in the place of all else.
_ANYWHERE = ("synchronize", "full launch queue", "collective", "item", "launches", "pageable copies")


def _ready(where: Device) -> Any:
    """A result with which the kernels used here were loaded: loading one waits for a kernel that runs."""
    result = torch.zeros(1024, device=where.name)[:1]
    result.add_(1.0)
    result.item()
    where.synchronize()
    return result


def _join(where: Device) -> Any:
    """A process group of both ranks, after its first collective."""
    dist.init_process_group(where.backend, timeout=datetime.timedelta(seconds=GROUP_S))
    result = _ready(where)
    dist.all_reduce(result)
    where.synchronize()
    return result


def _obey(where: Device, page: Page, order: int) -> None:
    name, turns = NAMES[order - 1], Turns(page, order)
    call = CALLS[name] if name in _ANYWHERE or not isinstance(where, StandIn) else _launches
    try:
        call(where, turns)
        turns.end()
    except Exception:  # noqa: BLE001 - the next call may do well, and who measures is to read why this did not
        traceback.print_exc()
        page[At.STANDS] = -order
        while not turns.over:
            time.sleep(IDLE_S)
    page[At.STANDS] = 0.0


def _stay_away(where: Device, page: Page) -> None:
    order = number("collective")
    while page[At.ORDER] != order:
        time.sleep(IDLE_S)
    result = _join(where)
    while page[At.ORDER] == order:
        time.sleep(IDLE_S)
    dist.all_reduce(result)
    where.synchronize()
    threading.Event().wait()  # the other would take its end for a failure


def main() -> None:
    page, where = open_page(Path(sys.argv[1])), device("--dry" in sys.argv)
    _ready(where)
    print("ready", flush=True)
    if os.environ["RANK"] != "0":
        _stay_away(where, page)
    while True:
        if order := int(page[At.ORDER]):
            _obey(where, page, order)
        time.sleep(IDLE_S)


if __name__ == "__main__":
    main()
