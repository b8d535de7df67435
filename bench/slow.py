"""How well and how soon a degrader is found in a job that moves, beside ByteRobust's vote of five fixed rounds.

    python bench/slow.py [--looks N] [--jobs N] [--seed TEXT] [--healthy] [RANKS ...]        default: 5 looks at 64 512 4096 16384 ranks

Every row is a kind of job, drawn many times (fewer where large) with fixed seeds: jobs without a degrader, in which naming
anybody is a false alarm, then jobs with one or two. In each look a rank is late with the rate of its pipeline stage
(drawn between 0.02 and 0.3 for each job and stage, unless the row says otherwise), a degrader besides with its own.
The peer groups equal stacks, calls the largest group of each stage healthy, and votes in each of five rounds for the
pipeline group with the most others; it has no way to say that nobody is slow. Seconds are CPU seconds of hangdog's
answer, all looks of a job together. A job is *called slow* where a verdict names somebody; of those that count as found the odds
reach false alarms' bound, from which on a machine is evicted.
"""

import argparse
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.options import DEFAULTS
from hangdog_models.diagnosis.stragglers.fail_slow import ROUNDS, Slowness, find
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Activity, Kind

TENSOR = PER_MACHINE = 8
#: Jobs a row at up to 512 ranks; the ranks drawn in all for a row of larger jobs, and how many jobs these are at least.
JOBS, RANKS_A_ROW, JOBS_AT_LEAST = 300, 200_000, 25

WAITS = [
    RankState(Activity.COLLECTIVE, Wait.GROUP, operation="all_reduce", label=label)
    for label in ("grad_norm", "reduce_grads", "row_parallel", "finish_grad_sync", "recv_forward")
]
WORK = [RankState(Activity.COMPUTE, Wait.NONE, label=label) for label in ("attention", "mlp", "embed", "loss")]
LOADER = RankState(Activity.DATALOADER, Wait.NONE, operation="next", label="next_batch")
LOG = RankState(Activity.COMPUTE, Wait.NONE, label="write_metrics")

#: The ranks of one look that are late, and where they stand.
Late = dict[int, RankState]


@dataclass
class Job:
    """One job of a row: its shape, its rates and its degraders (`guilty` ranks late together at rate `own`)."""

    topology: Topology
    chance: random.Random
    rates: list[float]
    guilty: list[list[int]]
    own: float = 0.0

    @property
    def world(self) -> int:
        return self.topology.world_size

    def stage(self, rank: int) -> int:
        return self.topology.stage(Rank(rank)) or 0

    def some(self, ranks: Sequence[int], rate: float) -> list[int]:
        """Each of the ranks with the given probability."""
        count = sum_of_coins(self.chance, len(ranks), rate)
        return self.chance.sample(ranks, count)


def sum_of_coins(chance: random.Random, coins: int, rate: float) -> int:
    if coins > 200 and rate * coins > 5:  # near enough to normal, and a thousand times as fast
        return min(coins, max(0, round(chance.gauss(rate * coins, (coins * rate * (1 - rate)) ** 0.5))))
    return sum(chance.random() < rate for _ in range(coins))


def shape(ranks: int) -> Topology:
    stages = 2 if ranks <= 64 else 4
    sizes = {"tp": TENSOR, "dp": ranks // TENSOR // stages, "pp": stages}
    return build(Layout(sizes=sizes, ranks_per_machine=PER_MACHINE), Rank(ranks - 1))[0]


def by_stage(job: Job) -> Late:
    """Every rank late by itself, at the rate of its stage."""
    size = job.world // len(job.rates)  # stages are blocks of ranks in this order of dimensions
    late: Late = {}
    for stage, rate in enumerate(job.rates):
        for rank in job.some(range(stage * size, (stage + 1) * size), rate):
            late[rank] = job.chance.choice(WORK)
    for ranks in job.guilty:
        if job.chance.random() < job.own:
            late.update({rank: job.chance.choice(WORK) for rank in ranks})
    return late


def last_one(job: Job) -> Late:
    """One rank, another each time, is the last to arrive."""
    return {job.chance.randrange(job.world): job.chance.choice(WORK)}


def last_machine(job: Job) -> Late:
    """All ranks of one machine, another each time, are the last to arrive."""
    first = job.chance.randrange(job.world // PER_MACHINE) * PER_MACHINE
    return dict.fromkeys(range(first, first + PER_MACHINE), WORK[0])


def by_machine(job: Job) -> Late:
    """Whole machines late together, at a tenth."""
    machines = job.some(range(job.world // PER_MACHINE), 0.1)
    return {m * PER_MACHINE + at: WORK[0] for m in machines for at in range(PER_MACHINE)}


def phases(job: Job) -> Late:
    """Every look has a rate of its own: most compute in one, nearly all wait in the next."""
    return dict.fromkeys(job.some(range(job.world), job.chance.choice((0.01, 0.1, 0.5, 0.9))), WORK[1])


def last_stage(job: Job) -> Late:
    """The last stage has more work: the others wait for it nine times in ten."""
    job.rates = [0.05] * (len(job.rates) - 1) + [0.9]
    return by_stage(job)


def rank_zero(job: Job) -> Late:
    """Rank 0 writes metrics while all others wait, in every look."""
    return {**dict.fromkeys(job.some(range(job.world), 0.02), WORK[0]), 0: LOG}


def loaders(job: Job) -> Late:
    """The first tensor rank of each replica reads the data while the others wait for it."""
    first = range(0, job.world // len(job.rates), TENSOR)
    return {**by_stage(job), **dict.fromkeys(job.some(first, 0.9), WORK[2])}


def leaders(job: Job) -> Late:
    """The first rank of each machine has duties of its own, in most looks."""
    first = range(0, job.world, PER_MACHINE)
    return {**by_stage(job), **dict.fromkeys(job.some(first, 0.7), WORK[3])}


def storage(job: Job) -> Late:
    """Nearly everybody waits for data."""
    return dict.fromkeys(job.some(range(job.world), 0.8), LOADER)


@dataclass
class Row:
    """A kind of job: who is late in a look, how many degraders of how many ranks, and the share of looks they are late in."""

    name: str
    late: Callable[[Job], Late] = by_stage
    degraders: int = 0
    width: int = PER_MACHINE
    own: float = 0.0
    rates: tuple[float, float] = (0.02, 0.3)
    lost: float = 0.0


HEALTHY = [
    Row("late at random, 0.02-0.3 by stage"),
    Row("the same, 10 % of the ranks not captured", lost=0.1),
    Row("late at random, 0.02 everywhere", rates=(0.02, 0.02)),
    Row("one rank is the last, another each time", last_one),
    Row("one machine is the last, another each time", last_machine),
    Row("whole machines late at random, 0.1", by_machine),
    Row("phases: 1 % to 90 % late, by look", phases),
    Row("the last stage has more work", last_stage),
    Row("rank 0 writes metrics", rank_zero),
    Row("first tensor ranks load the data", loaders),
    Row("the first rank of each machine has more work", leaders),
    Row("nearly all wait for data", storage),
]
DEGRADED = [
    *[Row(f"a machine late at {own}", degraders=1, own=own) for own in (0.6, 0.8, 0.95)],
    *[Row(f"a rank late at {own}", degraders=1, width=1, own=own) for own in (0.6, 0.8, 0.95)],
    *[
        Row(f"{what} late at {own}, others at 0.02", degraders=1, width=width, own=own, rates=(0.02, 0.02))
        for what, width in (("a machine", PER_MACHINE), ("a rank", 1))
        for own in (0.6, 0.8, 0.95)
    ],
    Row("a machine at 0.8, 10 % not captured", degraders=1, own=0.8, lost=0.1),
    Row("two machines late at 0.8", degraders=2, own=0.8),
    Row("two ranks late at 0.8, others at 0.02", degraders=2, width=1, own=0.8, rates=(0.02, 0.02)),
]


def draw(row: Row, topology: Topology, seed: str) -> Job:
    chance = random.Random(seed)
    low, high = row.rates
    rates = [low * (high / low) ** chance.random() for _ in topology.groups["pp"][0]]
    machines = chance.sample(range(topology.world_size // PER_MACHINE), row.degraders)
    starts = [machine * PER_MACHINE + (chance.randrange(PER_MACHINE) if row.width == 1 else 0) for machine in machines]
    return Job(topology, chance, rates, [list(range(start, start + row.width)) for start in starts], row.own)


def look(job: Job, row: Row) -> Look:
    """Nearly all wait, at a place that changes from look to look, and the late ones stand outside."""
    standings = dict.fromkeys(map(Rank, range(job.world)), job.chance.choice(WAITS))
    for rank, place in row.late(job).items():
        standings[Rank(rank)] = place
    for rank in job.some(range(job.world), row.lost) if row.lost else ():
        del standings[Rank(rank)]
    return standings


def five_rounds(looks: Sequence[Look], topology: Topology) -> tuple[str, ...]:
    """ByteRobust's vote (SOSP 2025): the machines of the pipeline group that gathers most votes in five rounds."""
    votes: Counter[tuple[Rank, ...]] = Counter()
    for one in looks:
        classes: dict[int, Counter[object]] = {}
        for rank, standing in one.items():
            classes.setdefault(topology.stage(rank) or 0, Counter())[standing.place] += 1
        healthy = {stage: counter.most_common(1)[0][0] for stage, counter in classes.items()}
        outliers: Counter[tuple[Rank, ...]] = Counter()
        for rank, standing in one.items():
            if standing.place != healthy[topology.stage(rank) or 0]:
                outliers[topology.group("pp", rank) or (rank,)] += 1
        if outliers:
            votes[outliers.most_common(1)[0][0]] += 1
    return topology.machines_of(votes.most_common(1)[0][0]) if votes else ()


@dataclass
class Tally:
    jobs: int = 0
    called: int = 0
    first: int = 0
    named: int = 0
    hit: int = 0
    machines: int = 0
    looks: int = 0
    seconds: float = 0.0
    dependency: int = 0
    peer_named: int = 0
    peer_hit: int = 0
    peer_machines: int = 0


def run(row: Row, topology: Topology, jobs: int, rounds: int, seed: str) -> Tally:
    tally = Tally()
    for number in range(jobs):
        job = draw(row, topology, f"{seed}{row.name} {topology.world_size} {number}")
        guilty = set(topology.machines_of(Rank(rank) for ranks in job.guilty for rank in ranks))
        looks = [look(job, row) for _ in range(rounds)]
        began = process_time()
        answer = find(
            looks, topology, rounds=rounds, stepped=[True] * len(looks)
        )  # weighs look after look, and stops when it can
        tally.seconds += process_time() - began
        peer = five_rounds(looks[:: rounds // ROUNDS], topology)
        count(tally, answer, peer, guilty)
    return tally


def count(tally: Tally, answer: Slowness, peer: tuple[str, ...], guilty: set[str]) -> None:
    named = {machine for machine, probability in answer.machines.items() if probability >= DEFAULTS.coverage_target}
    called = answer.kind is Kind.SLOW
    tally.jobs += 1
    tally.called += called
    tally.first += called and not guilty.isdisjoint(answer.suspects[0].machines)
    tally.looks += answer.looks_used
    tally.named += bool(named)
    tally.dependency += answer.kind is Kind.DEPENDENCY
    tally.hit += bool(guilty) and guilty <= named
    tally.machines += len(named)
    tally.peer_named += bool(peer)
    tally.peer_hit += bool(guilty) and guilty <= set(peer)
    tally.peer_machines += len(peer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", nargs="*", type=int, default=[64, 512, 4096, 16384])
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs a row, of up to 512 ranks")
    parser.add_argument(
        "--looks", type=int, default=ROUNDS, help="a multiple of 5: so many looks share the same fifty seconds"
    )
    parser.add_argument(
        "--seed", default="", help="draws other jobs: the constants were chosen on those of the empty seed"
    )
    parser.add_argument("--healthy", action="store_true", help="only the jobs without a degrader")
    options = parser.parse_args()
    for ranks in options.ranks:
        topology = shape(ranks)
        jobs = max(min(JOBS_AT_LEAST, options.jobs), min(options.jobs, RANKS_A_ROW // ranks))
        print(f"\n{ranks} ranks, {jobs} jobs a row, {options.looks} looks at most")
        print(
            f"\n{'healthy jobs':46} {'evicted':>9} {'called slow':>11} {'dependency':>10} {'looks':>6} {'s/job':>7}  peer names somebody"
        )
        for row in HEALTHY:
            t = run(row, topology, jobs, options.looks, options.seed)
            print(
                f"{row.name:46} {t.named / jobs:9.3%} {t.called / jobs:11.3%} {t.dependency / jobs:10.1%} {t.looks / jobs:6.2f}"
                f" {t.seconds / jobs:7.4f}  {t.peer_named / jobs:.1%}",
                flush=True,
            )
        print(
            f"\n{'jobs with degraders':46} {'all found':>11} {'first named':>11} {'machines':>10} {'looks':>6} {'s/job':>7}  peer: found, machines"
        )
        for row in [] if options.healthy else DEGRADED:
            t = run(row, topology, jobs, options.looks, options.seed)
            print(
                f"{row.name:46} {t.hit / jobs:11.1%} {t.first / jobs:11.1%} {t.machines / max(1, t.named):10.2f} {t.looks / jobs:6.2f}"
                f" {t.seconds / jobs:7.4f}  {t.peer_hit / jobs:.1%}, {t.peer_machines / max(1, t.peer_named):.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
