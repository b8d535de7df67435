"""Seconds of CPU and memory of scoring who explains the labels, by ranks, and how often the planted culprit comes first.

    python bench/relations.py [RANKS ...]        default: 1024 4096 16384 65536 262144 1048576

Each job is tp 8 x pp 8 x dp on machines of eight ranks under switches of 32 machines; one rank does not join, all others
wait for it, and of `noise` of the ranks the label is wrong. Each row runs in a process of its own: `explain` is its peak
of memory beyond the topology and the labels, `process` the whole of it. With four times the ranks, about four times
the seconds of the row before mean linear.
"""

import argparse
import multiprocessing
import random
import resource
from time import process_time

from hangdog_models.diagnosis.clustering.relations import explain
from hangdog_models.ranks import Rank
from hangdog_models.topology import Layout, Topology, build

TENSOR, STAGES, PER_MACHINE, PER_SWITCH = 8, 8, 8, 32
NOISES = (0.0, 0.02)


def job(ranks: int) -> Topology:
    machines = max(1, ranks // PER_MACHINE)
    switches = {
        f"leaf-{at}": tuple(f"node-{number}" for number in range(at * PER_SWITCH, min(machines, (at + 1) * PER_SWITCH)))
        for at in range(-(-machines // PER_SWITCH))
    }
    sizes = {"tp": TENSOR, "dp": ranks // (TENSOR * STAGES), "pp": STAGES}
    return build(Layout(sizes=sizes, ranks_per_machine=PER_MACHINE, switches=switches), None)[0]


def labels(topology: Topology, culprit: Rank, noise: float) -> dict[Rank, str]:
    chance = random.Random(topology.world_size)
    found = dict.fromkeys(topology.groups["world"][0], "gradients")
    own = topology.stage(culprit) or 0
    for rank in topology.group("mp", culprit) or ():
        at = topology.stage(rank) or 0
        found[rank] = "before" if at < own else "after" if at > own else "tensor"
    found[culprit] = "culprit"
    for rank in found:
        if rank != culprit and chance.random() < noise:
            found[rank] = chance.choice(["before", "after", "tensor", "gradients", f"odd {rank}"])
    return found


def peak_mib() -> float:
    """Peak resident memory of this process in MiB; Linux reports KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def row(ranks: int, noise: float) -> None:
    topology = job(ranks)
    culprit = Rank(ranks * 5 // 8 + 3)
    seen = labels(topology, culprit, noise)
    topology.machine(culprit), topology.group("pp", culprit)
    before, started = peak_mib(), process_time()
    found = explain(seen, topology)
    spent = process_time() - started
    first = bool(found.candidates) and found.candidates[0].ranks == (culprit,)
    print(
        f"{ranks:9}  {noise:5.2f}  {spent:8.2f}  {1e6 * spent / ranks:8.1f}  {peak_mib() - before:11.0f}"
        f"  {peak_mib():11.0f}  {'yes' if first else 'no':>5}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = [1 << power for power in (10, 12, 14, 16, 18, 20)]
    parser.add_argument("ranks", nargs="*", type=int, default=sizes, help="sizes of the job")
    asked = parser.parse_args().ranks
    print("    ranks  noise   seconds   us/rank  explain MiB  process MiB  first")
    context = multiprocessing.get_context("spawn")
    for ranks in asked:
        for noise in NOISES:
            child = context.Process(target=row, args=(ranks, noise))
            child.start()
            child.join()


if __name__ == "__main__":
    main()
