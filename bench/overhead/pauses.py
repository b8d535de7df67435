"""How long a process is held by each kind of capture, as a heartbeat in it sees it."""

import math
import mmap
import statistics
import time
from collections.abc import Callable

from hangdog_agent.capture import pyspy
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_models.stack import Missing
from overhead.stage import stage

#: A whole capture must fit in, and the heartbeat in the process notice its end. Seconds.
AROUND_S = 0.02
#: How long nothing is done where nothing is done: as long as most captures take. Seconds.
NOTHING_S = 0.05
#: Unwinding libtorch takes up to a second on a busy machine. Seconds.
NATIVE_S = 20.0

#: Waits for a peer in libtorch, as a rank does, beside 40 threads of 25 frames; its longest gap stands in the file named.
TARGET = """
import datetime, mmap, os, sys, threading, time
import torch.distributed
longest = memoryview(mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 8)).cast("d")
def beat():
    last = time.perf_counter()
    while True:
        time.sleep(0.0001)
        now = time.perf_counter()
        if now - last > longest[0]:
            longest[0] = now - last
        last = now
def deep(frames):
    return deep(frames - 1) if frames else never.wait()
never = threading.Event()
for _ in range(40):
    threading.Thread(target=deep, args=(25,), daemon=True).start()
threading.Thread(target=beat, daemon=True).start()
store = torch.distributed.TCPStore("127.0.0.1", 0, 1, True, timeout=datetime.timedelta(hours=1))
os.write(1, b"ready\\n")
store.get("never")
"""


def pauses(captures: int) -> None:
    """Prints the distribution of the pauses of so many captures of each kind, taken in turn."""
    kinds = ways()
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    failed = dict.fromkeys(kinds, 0)
    with stage() as here:
        file = here.folder / "longest"
        file.write_bytes(bytes(8))
        target = here.start("target", "-c", TARGET, str(file), says="ready")
        with file.open("r+b") as opened:
            longest = memoryview(mmap.mmap(opened.fileno(), 8)).cast("d")
        for _ in range(captures):
            for kind, capture in kinds.items():
                time.sleep(AROUND_S)
                longest[0] = 0.0
                began = time.perf_counter()
                failed[kind] += not capture(target.pid)
                took = time.perf_counter() - began
                time.sleep(AROUND_S)
                found[kind].append((longest[0], took))
    print(f"\npauses: a process with libtorch and 42 Python threads, {captures} captures of each kind in turn; ms")
    print("  capture              pause p50    p95    max    takes p50    p95    max   failed")
    for kind, seen in found.items():
        pause, whole = (figures([1000 * pair[at] for pair in seen]) for at in (0, 1))
        print(f"  {kind:20}    {pause}       {whole}   {failed[kind]:6}", flush=True)


def ways() -> dict[str, Callable[[int], bool]]:
    """The kinds of capture; each answers whether it worked."""
    tool, settings = pyspy.load(), CaptureSettings()
    if isinstance(tool, Missing):
        raise SystemExit(str(tool))
    spy = tool

    def nothing(_: int) -> bool:
        time.sleep(NOTHING_S)
        return True

    def native(pid: int) -> bool:
        return not isinstance(spy.dump(pid, NATIVE_S, settings, blocking=True, native=True), Missing)

    return {
        "none": nothing,
        "nonblocking": lambda pid: not isinstance(spy.dump(pid, settings.nonblocking_s, settings), Missing),
        "blocking": lambda pid: not isinstance(spy.dump(pid, settings.blocking_s, settings, blocking=True), Missing),
        "native, blocking": native,
    }


def figures(values: list[float]) -> str:
    ordered = sorted(values)
    return " ".join(
        f"{value:6.1f}"
        for value in (statistics.median(ordered), ordered[math.ceil(0.95 * len(ordered)) - 1], ordered[-1])
    )
