"""Whether looks at a job that moves are as sure as they are right: what is said of a sound job and of a suspect, and what is true.

    python bench/slow_calibration.py [--jobs N] [--looks N] [--seed TEXT]       default: 60 jobs a row of 64 ranks, five looks

The jobs are those of `bench/slow.py`: each row without a degrader counts alike, and so does each with one. The second count for as
much beside the first as the prior says that such jobs are met. What no look shows, as a slow link, is not among them.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.stragglers.fail_slow import LATE_SHOWN, ROUNDS, STRAGGLER_PRIOR, find
from hangdog_models.ranks import Rank
from slow import DEGRADED, HEALTHY, Row, draw, look, shape

RANKS, BINS = 64, 10
#: Where nearly all wait for data the job is no sound one, and nobody is a degrader.
ROWS = [row for row in HEALTHY if row.name != "nearly all wait for data"]


@dataclass
class Bin:
    """All answers of nearly the same probability: their weight, what they said, and how much of it is true."""

    weight: float = 0.0
    said: float = 0.0
    true: float = 0.0

    def add(self, weight: float, said: float, *, true: bool) -> None:
        self.weight += weight
        self.said += weight * said
        self.true += weight * true


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=60, help="jobs a row")
    parser.add_argument("--looks", type=int, default=ROUNDS)
    parser.add_argument("--seed", default="calibration")
    options = parser.parse_args()
    sound: dict[int, Bin] = {}
    first: dict[int, Bin] = {}
    degraded = [row for row in DEGRADED if row.degraders == 1]
    for rows, share in ((ROWS, 1.0), (degraded, STRAGGLER_PRIOR * LATE_SHOWN)):
        for row in rows:
            for number in range(options.jobs):
                seed = f"{options.seed}{row.name} {number}"
                judge(row, seed, options.looks, share / len(rows) / options.jobs, sound, first)
    table("the job is sound", sound)
    table("the first suspect is a degrader", first)


def judge(row: Row, seed: str, looks: int, weight: float, sound: dict[int, Bin], first: dict[int, Bin]) -> None:
    """Adds what is said of one job."""
    topology = shape(RANKS)
    job = draw(row, topology, seed)
    guilty = set(topology.machines_of(Rank(rank) for ranks in job.guilty for rank in ranks))
    answer = find([look(job, row) for _ in range(looks)], topology, rounds=looks, stepped=[True] * looks)
    sound.setdefault(_bin(answer.sound), Bin()).add(weight, answer.sound, true=not guilty)
    for one in answer.suspects[:1]:
        accused = not guilty.isdisjoint(one.machines)
        first.setdefault(_bin(one.probability), Bin()).add(weight, one.probability, true=accused)


def _bin(probability: float) -> int:
    return min(int(probability * BINS), BINS - 1)


def table(title: str, bins: Mapping[int, Bin]) -> None:
    """One line a bin."""
    whole = sum(one.weight for one in bins.values())
    print(f"\n{title:32} {'said':>6} {'true':>6} {'of all':>7}")
    for at, one in sorted(bins.items()):
        share = one.weight / whole
        print(f"{at / BINS:.1f} to {(at + 1) / BINS:.1f}{'':22} {one.said / one.weight:6.2f} {one.true / one.weight:6.2f} {share:7.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
