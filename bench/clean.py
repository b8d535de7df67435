"""How often the ladder convicts a sound machine: clean runs of every level on the CPU, whatever else this machine does meanwhile.

    python bench/clean.py [--runs N] [--level N ...]        default: 200 runs of each level, some two hours on two cores

Three processes stand for devices, or for machines; level 0 reads a fake NVML of two GPUs and a log of its own, the other levels
run as they do for `hangdog test local`, in small sizes. The levels take turns, so that all meet the same disturbances.
A run is `convicted` when it names the machine or a device, `failed` when a test failed for which nobody is evicted, and
`open` when nothing failed and a test came to no end; each of these is told on stderr when it happens. Levels 1 to 4 take PyTorch.
Ctrl-C or SIGTERM ends it with the runs so far. Exit status: 1 where anybody was convicted.
"""

import argparse
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import Level, LevelOutcome
from hangdog_agent.machine_tests.level_runner import LadderOutcome, LevelsReport, climb
from hangdog_agent.machine_tests.levels.passive import Passive
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.standard_levels import LEVELS, WantedLevels, standard
from hangdog_agent.machine_tests.torch_engine import Engine, Probe
from support.fakes.fake_gpus import FakeGpus, built

#: A majority takes three.
PROCESSES = 3
#: Enough for each test to do what it does, in a second or two of one core.
SMALL = replace(
    LevelSettings(),
    passive_apart_s=0.2,
    memory_bytes=8 << 20,
    gemm_size_cpu=192,
    gemm_repetitions=10,
    speed_repetitions=40,
    alignment_repetitions=4,
    alignment_width_cpu=32,
)
#: A level's own deadline is shorter.
BUDGET_S = 600.0
#: What the job of level 5 is: it has to start, and to end.
COMMAND = (sys.executable, "-I", "-S", "-c", "print('done')")
#: The log of a sound machine: nothing here is the hardware's fault.
LOG = (
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.133.20",
    "NVRM: Xid (PCI:0000:1b:00): 31, pid=4711, name=python3, Ch 00000008, MMU Fault",
    "nfs: server store not responding, still trying",
    "nfs: server store OK",
    "mlx5_core 0000:3b:00.0: Port module event: module 0, Cable plugged",
)


@dataclass(slots=True)
class Row:
    """What came of the runs of one level."""

    verdicts: Counter[LadderOutcome] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="of each level")
    parser.add_argument("--level", type=int, choices=LEVELS, action="append", help="this level only; may be repeated")
    options = parser.parse_args()
    rows = {level: Row() for level in options.level or LEVELS}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as `timeout` sends it
    with suppress(KeyboardInterrupt):
        measure(options.runs, rows)
    print("| level | runs | convicted | failed | open | not convicted | seconds, median and most |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for level, row in rows.items():
        if not row.seconds:
            continue
        told = " | ".join(str(row.verdicts[verdict]) for verdict in LadderOutcome)
        print(f"| {level} | {len(row.seconds)} | {told} | {median(row.seconds):.1f}, {max(row.seconds):.1f} |")
    sys.exit(any(row.verdicts[LadderOutcome.CONVICTED] for row in rows.values()))


def measure(runs: int, rows: Mapping[int, Row]) -> None:
    """So many runs of each level, in turns."""
    with tempfile.TemporaryDirectory(prefix="hangdog-clean-") as folder, sound(Path(folder)) as passive:
        for turn in range(runs):
            for level, row in rows.items():
                began = time.monotonic()
                diagnosis = clean(level, passive)
                row.seconds.append(time.monotonic() - began)
                row.verdicts[diagnosis.verdict] += 1
                for one in diagnosis.results:
                    if one.outcome is not LevelOutcome.PASS:
                        print(f"run {turn}, level {level}, {one.test}: {one.message}", *one.evidence, file=sys.stderr)


def clean(level: int, passive: Level) -> LevelsReport:
    """One run of a level where nothing is broken; of level 3 what all its members say."""
    engine, probe, stop = Engine(), Probe("of this bench", 0), threading.Event()
    if level == 0:
        return climb([passive], BUDGET_S, stop)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = f"127.0.0.1:{free.getsockname()[1]}"
    groups = [Group(meet, at, PROCESSES) for at in range(PROCESSES)] if level == 3 else [Group()]

    def one(group: Group) -> LevelsReport:
        wish = WantedLevels(PROCESSES, group=group, command=COMMAND)
        return climb(standard(engine, probe, SMALL, wish, {level}), BUDGET_S, stop)

    with ThreadPoolExecutor(len(groups)) as pool:
        told = list(pool.map(one, groups))
    return LevelsReport(tuple(climbed for each in told for climbed in each.levels))


@contextmanager
def sound(folder: Path) -> Iterator[Passive]:
    """Level 0 on a machine with two GPUs in order and an uneventful log."""
    library = built(folder)
    if library is None:
        sys.exit("no C compiler to build the fake NVML with: apt-get install gcc")
    gpus = FakeGpus(folder / "answers", library)
    log = folder / "kmsg"
    at = int(1e6 * (time.monotonic() - 60))
    log.write_text("".join(f"4,{seq},{at + seq},-;{line}\n" for seq, line in enumerate(LOG)), encoding="utf-8")
    yield Passive(SMALL, {**os.environ, **gpus.environ}, places=CheckPaths(kmsg=log))


if __name__ == "__main__":
    main()
