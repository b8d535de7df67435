"""What the stacks of a slow job tell of the machine that slows it, and what naming as many machines at random would hit.

    python bench/slow_signal.py               60 incidents of bench/accuracy on seeds of their own, about a minute
    python bench/slow_signal.py --count 200   more of them

For each activity: how much of the time the hosts of slow devices show it, and all others. The bits are what one look at one
rank tells on average of whether it is slow (Kullback-Leibler divergence); to name one machine of 16 takes 4 of them.
"""

import argparse
import sys
from collections import defaultdict
from math import log2
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent)

from accuracy import peer
from accuracy.simulator.incident import Evidence, Incident
from accuracy.simulator.make import incident
from hangdog_models.diagnosis.judge import investigate

#: Where the seeds begin, far from those of the benchmark's sets, and the sizes and faults drawn in turn.
FIRST, SIZES, FAULTS = 7_200_000, (64, 64, 128, 128, 256), ("slow device", "slow machine")


def main() -> None:
    """Prints the table and the two counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="incidents (default: 60)")
    count = parser.parse_args().count
    slow, others = defaultdict[str, float](float), defaultdict[str, float](float)
    named, right, chance = 0, 0, 0.0
    for seed in range(FIRST, FIRST + count):
        made = incident(seed, SIZES[seed % len(SIZES)], FAULTS[seed % len(FAULTS)])
        add(made, slow, others)
        machines = peer.aggregate(made.snapshots[Evidence.STACKS], made.topology).machines
        named += bool(machines)
        right += bool(machines) and set(made.truth.machines) <= set(machines)
        chance += len(machines) / len(made.topology.machines)
    bits = 0.0
    print(f"{'activity':14}{'slow':>8}{'others':>8}")
    for activity in sorted({*slow, *others}):
        theirs, usual = slow[activity] / sum(slow.values()), others[activity] / sum(others.values())
        bits += theirs * log2(theirs / usual) if theirs and usual else 0.0
        print(f"{activity:14}{theirs:8.3f}{usual:8.3f}")
    print(f"{bits:.4f} bits a look")
    print(f"the peer names machines in {named} of {count}, is right in {right}, and would be by chance in {chance:.1f}")


def add(made: Incident, slow: dict[str, float], others: dict[str, float]) -> None:
    """Counts what the ranks of one incident show in its looks; each side weighs as much as one rank."""
    guilty = set(made.truth.ranks)
    for look in investigate(made.snapshots[Evidence.STACKS], made.topology).looks:
        seen = {rank: str(standing.activity) for rank, standing in look.items() if standing.frames}
        for rank, activity in seen.items():
            side, size = (slow, len(guilty)) if rank in guilty else (others, len(seen) - len(guilty))
            side[activity] += 1 / max(1, size)


if __name__ == "__main__":
    main()
