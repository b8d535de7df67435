"""A real server with a window in it: `python -m scale.watched FOLDER` says where it listens, then what it holds on each line read.

It is the server of `hangdog server`, in the same process, with metrics; only what lies for hours or months is kept for minutes,
so that a soak sees it go again.
"""

import argparse
import asyncio
import ctypes
import gc
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from hangdog_models.diagnosis.judge import diagnose
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.logs import configure
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.listener import ListenerConfig, OpenListeners
from hangdog_server.main import running
from hangdog_server.observability.setup import observing
from hangdog_server.settings import ServerSettings
from hangdog_server.store.store import Store

#: Machines that left are forgotten, and the store comes to its bounds, well before the warm-up of a soak is over; and so
#: does what is kept of stacks that moved, which is asked for never again.
SETTINGS = ServerSettings(forget_s=180.0, prune_s=20.0, keep_s=480.0, keep_bytes=4 << 20)
PIECES, STACKS_BYTES = 1 << 16, 1 << 20
#: How the threads of asyncio's own pool are called. They begin one by one and never end, four more than there are cores at
#: most: it fills up for hours, and is no leak.
POOL = "asyncio_"


class _Heap(ctypes.Structure):
    """mallinfo2 of <malloc.h>."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


def _heap() -> float:
    """MiB that the C library has given out and not got back."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _Heap
    found = library.mallinfo2()
    return int(found.uordblks + found.hblkhd) / (1 << 20)


def _held(folder: Path, means: IncidentServices) -> dict[str, float]:
    """What the process holds now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    used = os.times()
    return {
        "rss_mib": int(status["VmRSS"].split()[0]) / 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]) - sum(one.name.startswith(POOL) for one in threading.enumerate()),
        "tasks": len(asyncio.all_tasks()),
        "pieces": len(means.dictionary),
        "made": means.dictionary.stacks_built,
        "heap_mib": _heap(),
        "blocks": sys.getallocatedblocks(),
        "store_mib": sum(file.stat().st_size for file in folder.glob("incidents.db*")) / (1 << 20),
        "connected": means.fleet.counts(asyncio.get_running_loop().time())["connected"],
        "cpu_s": used.user + used.system,
    }


def _objects() -> dict[str, int]:
    """How many objects of each kind the collector knows, the most frequent: what grows there has a name."""
    gc.collect()
    return dict(Counter(type(one).__qualname__ for one in gc.get_objects()).most_common(60))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where its store and its audit are")
    folder = parser.parse_args().folder
    configure("text", "%(asctime)s %(levelname)s %(message)s")
    fleet = Fleet(SETTINGS)
    async with observing("127.0.0.1:0", fleet) as observers:
        store = Store(folder / "incidents.db", SETTINGS.store_s, observers.telemetry)
        clock, dictionary = time.time, PieceCache(PIECES, STACKS_BYTES)  # noqa: TID251 - the main module has the clock
        means = IncidentServices(fleet, store, diagnose, clock, dictionary, observers.telemetry)
        opened = OpenListeners("127.0.0.1:0", ListenerConfig(audit=folder / "audit.jsonl"), SETTINGS, clock)
        asked: asyncio.Queue[str] = asyncio.Queue()
        threading.Thread(target=_read, args=(asyncio.get_running_loop(), asked), daemon=True).start()
        async with running(opened, means, SETTINGS, observers.interceptors) as address:
            print(address, flush=True)
            while wanted := await asked.get():
                said = _objects() if wanted == "objects" else _held(folder, means)
                print(json.dumps(said), flush=True)
        store.close()


def _read(loop: asyncio.AbstractEventLoop, asked: "asyncio.Queue[str]") -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(asked.put_nowait, line.strip() or "held")
    loop.call_soon_threadsafe(asked.put_nowait, "")


if __name__ == "__main__":
    asyncio.run(main())
