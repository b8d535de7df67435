"""Plans stop-time diagnostics on simulated faults, beside what others do, and prints what was found and what it cost.

    python bench/planning                     every scene, 100 incidents each: some fifteen minutes
    python bench/planning --incidents 20      for a look
    python bench/planning --only 232          scenes whose name holds this

`exact`: named all faulty machines and nobody else (link and leaf: named the link or leaf, and no machine). `found`: all
faulty ones are among the named. `innocent`: incidents in which a sound machine would have been evicted, with how many on
average over all. Launches and rounds as mean and largest; hours as mean, of the longest launch of each round; `step s` is the CPU time of the
planner's slowest step.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parents[1]))

from planning.cluster import Cluster
from planning.methods import Answer
from planning.scenes import Scene, scenes

INCIDENTS = 100


@dataclass(frozen=True)
class Incident:
    """How one method did on one incident."""

    cluster: Cluster
    answer: Answer

    @property
    def exact(self) -> bool:
        told = self.cluster.links.keys() | self.cluster.leafs.keys()
        return self.answer.evict == self.cluster.machines.keys() and self.answer.tell == told

    @property
    def found(self) -> bool:
        return self.answer.evict >= set(self.cluster.machines)

    @property
    def innocent(self) -> int:
        return len(self.answer.evict - set(self.cluster.machines))


def measure(scene: Scene, method: str, incidents: int) -> list[Incident]:
    """One method on so many incidents, the same ones for every method."""
    found = []
    for seed in range(incidents * scene.times):
        cluster, belief = scene.cluster(seed)
        answer = scene.methods[method](belief)(cluster, tuple(belief.machines))
        found.append(Incident(cluster, answer))
    return found


def row(scene: Scene, method: str, seen: Sequence[Incident]) -> str:
    launches = [one.cluster.launches for one in seen]
    rounds = [one.cluster.rounds for one in seen]
    step = max(one.answer.step_s for one in seen)
    return (
        f"| {scene.name} | {method} | {len(seen)} | {share([one.exact for one in seen])} | {share([one.found for one in seen])} "
        f"| {share([bool(one.innocent) for one in seen])}, {fmean(one.innocent for one in seen):.2f} "
        f"| {fmean(launches):.1f}, {max(launches)} | {fmean(rounds):.1f}, {max(rounds)} "
        f"| {share([one <= 3 for one in rounds])} | {fmean(one.cluster.seconds for one in seen) / 3600:.1f} "
        f"| {f'{step:.2f}' if method == 'planner' else ''} | {scene.must if method == 'planner' else ''} |"
    )


def share(those: Sequence[bool]) -> str:
    return f"{100 * fmean(those):.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench/planning", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--incidents", type=int, default=INCIDENTS, help="of each scene; scenes of rare errors take more"
    )
    parser.add_argument("--only", default="", help="scenes whose name holds this")
    options = parser.parse_args()
    print(
        "| scene | method | n | exact | found | innocent | launches | rounds | <= 3 rounds | hours | step s | must be |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|")
    for scene in scenes(time.process_time):
        if options.only in scene.name:
            for method in scene.methods:
                print(row(scene, method, measure(scene, method, options.incidents)), flush=True)


if __name__ == "__main__":
    main()
