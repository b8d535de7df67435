"""How soon a fault inside collectives is noticed, and whether the right rank and cause are told.

    python bench/injections [--seeds 20] [--jobs N]      the seven faults of Mycroft's evaluation, each with every seed
    python bench/injections --misses                     also what was told wrongly, one by one
    python bench/injections --live [--seeds 1]           in real gloo jobs between network namespaces, beside real agents (root)

A job of eight ranks on four machines is played chunk by chunk (chunks.py). Its hosts all wait alike, for their device; there is
no flight recorder, no NCCL RAS and no hardware report. What agents see each second are the rings of the profiler plug-in, step
lines and stacks; the agent's JobMonitor and the server's StallTracker run unchanged on the played clock.

With --live nothing is played: see live.py. What is right there names the struck machine, and evicts no other.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path
from random import Random

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from hangdog_models.verdict import Kind
from injections import live
from injections.chunks import PER_MACHINE, RANKS, Fault
from injections.watched import Told, watch

#: The faults, and which of Mycroft's two triggers each is for.
FAULTS = {
    "NIC down": "failure",
    "GPU hang": "failure",
    "delayed rank": "failure",
    "mismatched call": "failure",
    "NIC slow": "performance",
    "GPU slow": "performance",
    "PCIe slow": "performance",
}
#: What a verdict may say of each. A network card that is down is one of the ends of every path that is stuck.
RIGHT = {
    "NIC down": {Kind.MACHINE, Kind.GROUP},
    "GPU hang": {Kind.MACHINE},
    "delayed rank": {Kind.MACHINE, Kind.SOFTWARE, Kind.DEPENDENCY},
    "mismatched call": {Kind.SOFTWARE},
    "NIC slow": {Kind.SLOW},
    "GPU slow": {Kind.SLOW},
    "PCIe slow": {Kind.SLOW},
}
#: A fault strikes a job that has trained for so long: a slower step is told by the job's own past. Seconds.
STRUCK_S = {"failure": (60.0, 90.0), "performance": (600.0, 630.0)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help="seeds of each fault (default 20, and 1 with --live)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    parser.add_argument(
        "--fault", choices=sorted({*FAULTS, *live.FAULTS}), action="append", help="this fault alone; may be repeated"
    )
    parser.add_argument(
        "--live", action="store_true", help="real jobs and agents, one seed each by default; needs root, ip and tc"
    )
    parser.add_argument("--misses", action="store_true", help="also what was told wrongly")
    options = parser.parse_args()
    faults = options.fault or list(live.FAULTS if options.live else FAULTS)
    if unknown := [one for one in faults if one not in (live.FAULTS if options.live else FAULTS)]:
        parser.error(f"{unknown[0]} is played {'without' if options.live else 'with'} --live only")
    if options.live:
        return int(bool(live.play(faults, options.seeds or 1)))
    asked = [(fault, seed) for fault in faults for seed in range(options.seeds or 20)]
    with ProcessPoolExecutor(options.jobs) as pool:
        told = list(pool.map(played, *zip(*asked, strict=True)))
    print(
        "| fault | trigger | triggered | after s: median, 90 %, worst | judged s later | right kind | right machine first | evicts others |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for fault, rows in groupby(told, key=lambda one: one.fault.kind):
        print(row(fault, list(rows)))
    if options.misses:
        for one in told:
            if not (one.verdict and right_kind(one) and right_first(one)):
                print(f"{one.fault.kind}, seed {one.seed}, rank {one.fault.rank}: {one.summary}")
    return int(any(wrongly_evicted(one) for one in told))


def played(kind: str, seed: int) -> Told:
    chance = Random(f"{kind} {seed}")
    fault = Fault(kind, chance.randrange(RANKS), chance.uniform(*STRUCK_S[FAULTS[kind]]))
    return watch(fault, seed)


def row(fault: str, told: Sequence[Told]) -> str:
    after = sorted(one.triggered_s for one in told if one.triggered_s is not None)
    judged = [one for one in told if one.verdict is not None]
    later = sorted(one.judged_s for one in judged if one.judged_s is not None)
    of = len(told)
    cells = [
        fault,
        FAULTS[fault],
        f"{len(after)} of {of}",
        _spread(after),
        _spread(later),
        f"{sum(map(right_kind, judged))} of {of}",
        f"{sum(map(right_first, judged))} of {of}",
        str(sum(map(wrongly_evicted, judged))),
    ]
    return f"| {' | '.join(cells)} |"


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    median, most = (seconds[round(share * (len(seconds) - 1))] for share in (0.5, 0.9))
    return f"{median:.0f}, {most:.0f}, {seconds[-1]:.0f}"


def right_kind(one: Told) -> bool:
    return one.verdict is not None and one.verdict.kind in RIGHT[one.fault.kind]


def right_first(one: Told) -> bool:
    """The first suspect is the rank that was struck, its machine, or the two ends of a path with it."""
    suspects = one.verdict.suspects if one.verdict is not None else ()
    return bool(suspects) and f"node-{one.fault.rank // PER_MACHINE}" in suspects[0].machines


def wrongly_evicted(one: Told) -> bool:
    struck = {f"node-{one.fault.rank // PER_MACHINE}"}
    innocent = one.fault.kind == "mismatched call"
    evicted = set(one.verdict.evict.machines) if one.verdict is not None else set()
    return bool(evicted) and (innocent or not struck <= evicted or len(evicted) > 2)


if __name__ == "__main__":
    sys.exit(main())
