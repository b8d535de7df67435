"""What goes wrong in the benchmark, who looks for it, and what must come out."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from hangdog_models.planning.campaign.assurance import needed
from hangdog_models.planning.campaign.belief import Belief
from hangdog_models.planning.campaign.conviction import failures_needed
from hangdog_models.planning.campaign.fault import FIXED, FailureMode
from hangdog_models.planning.campaign.launch import Diagnostic, LaunchBudget
from hangdog_models.planning.campaign.prior import begin
from planning.cluster import Cluster
from planning.methods import Method, bisection, pairing, planner, replay

#: All-gather between machines, as NVCRE runs it: 4 minutes a job.
ALL_GATHER = Diagnostic(
    "all-gather", seconds=180, setup_s=60, miss=0.0, false_alarm=0.02, least=2, most=16, network=True
)
#: For bisection, and to compare with NVCRE's count of tests: any size.
ANY_SIZE = replace(ALL_GATHER, most=1024)
#: The job itself in groups of 16 machines, ten minutes a repetition.
REPLAY = Diagnostic(
    "replay", seconds=600, setup_s=300, miss=0.0, false_alarm=0.02, least=16, most=16, multiple=16, network=True
)
RARE = FailureMode("shows in 0.2 of runs", 0.2)

#: Ways to look for a fault, by name; each is made for what is believed at the start.
Ways = dict[str, Callable[[Belief], Method]]


@dataclass(frozen=True)
class Scene:
    """`cluster` makes one incident of a seed; `methods` make a way to look for it, knowing the incident's belief."""

    name: str
    cluster: Callable[[int], tuple[Cluster, Belief]]
    methods: Ways
    must: str = ""
    times: int = 1


def names(count: int) -> list[str]:
    return [f"m{at:04}" for at in range(count)]


def scenes(clock: Callable[[], float]) -> list[Scene]:
    """All of them; `clock` times the planner's steps."""

    def planned(diagnostic: Diagnostic, budget: LaunchBudget) -> Ways:
        return {"planner": lambda belief: planner(belief, [diagnostic], budget, clock)}

    many = LaunchBudget(parallel=64, rounds=24)
    convict = failures_needed(1024, REPLAY.false_alarm)
    #: What the planner says it needs: so many repetitions in each launch.
    rare = needed([RARE], REPLAY, 0.99, convict) or 0
    enough = LaunchBudget(parallel=64, seconds=convict * REPLAY.takes_s(rare))
    cluster = replace(many, rounds=40)
    return [
        Scene(
            "1 of 232, fixed, no noise",
            lambda seed: bad(seed, 232, 1),
            planned(quiet(ANY_SIZE), LaunchBudget(launches=22)) | halving(noise=False) | two_phases(8, noise=False),
            "<= 22 launches",
        ),
        Scene(
            "1 of 232, fixed, 2 % false alarms",
            lambda seed: bad(seed, 232, 1),
            planned(ANY_SIZE, LaunchBudget(launches=22)) | halving() | two_phases(8),
            "<= 22 launches",
        ),
        Scene(
            "1 of 1,024, fixed, one of 8 suspects",
            lambda seed: suspected(seed, rightly=True),
            planned(ALL_GATHER, many) | halving(),
            "<= 3 rounds",
        ),
        Scene(
            "1 of 1,024, fixed, none of 8 suspects",
            lambda seed: suspected(seed, rightly=False),
            planned(ALL_GATHER, many),
        ),
        Scene(
            "1 of 1,024, fixed, no prior, no noise",
            lambda seed: bad(seed, 1024, 1),
            planned(quiet(REPLAY), many) | halving(noise=False) | two_phases(16, noise=False),
            "<= 3 rounds",
        ),
        Scene(
            "1 of 1,024, fixed, no prior, 2 % false alarms",
            lambda seed: bad(seed, 1024, 1),
            planned(REPLAY, many) | halving() | two_phases(16) | three_phases(),
        ),
        Scene(
            "2 of 1,024, fixed, no noise",
            lambda seed: bad(seed, 1024, 2),
            planned(quiet(REPLAY), many)
            | halving(noise=False)
            | two_phases(16, noise=False)
            | three_phases(noise=False),
            ">= 99 % exact",
        ),
        Scene(
            "2 of 1,024, fixed, 2 % false alarms",
            lambda seed: bad(seed, 1024, 2),
            planned(REPLAY, many) | two_phases(16) | three_phases(),
        ),
        Scene(
            f"1 of 1,024, p = 0.2, time for {convict} x {rare} repetitions",
            lambda seed: bad(seed, 1024, 1, RARE),
            planned(REPLAY, enough) | halving(rare) | two_phases(16, rare) | three_phases(rare),
            ">= 95 % found",
        ),
        Scene(
            "0 of 1,024, 2 % false alarms",
            lambda seed: bad(seed, 1024, 0),
            planned(REPLAY, many) | halving() | two_phases(16) | three_phases(),
            "nobody, >= 99.9 %",
            times=10,
        ),
        Scene(
            "a link of 64 machines",
            lambda seed: network(seed, leaf=False),
            planned(ALL_GATHER, cluster) | halving() | two_phases(8),
            "evicts nobody",
        ),
        Scene(
            "a leaf of 64 machines",
            lambda seed: network(seed, leaf=True),
            planned(ALL_GATHER, cluster) | halving() | two_phases(8),
            "evicts nobody",
        ),
    ]


def quiet(diagnostic: Diagnostic, noise: bool = False) -> Diagnostic:
    """The diagnostic without false alarms, unless there is to be `noise`."""
    return diagnostic if noise else replace(diagnostic, false_alarm=0.0)


def halving(repetitions: int = 1, noise: bool = True) -> Ways:
    """Those who halve the cluster, or pair its machines."""
    return {
        "bisection": lambda _: bisection(quiet(ANY_SIZE, noise), repetitions),
        "DLRover pairs": lambda _: pairing(quiet(ALL_GATHER, noise), repetitions),
    }


def two_phases(size: int, repetitions: int = 1, noise: bool = True) -> Ways:
    """ByteRobust's replay in groups of `size`."""
    name = "ByteRobust H, V" + (f" ({size})" if size != REPLAY.most else "")
    return {name: lambda _: replay(quiet(REPLAY, noise), size, False, repetitions)}


def three_phases(repetitions: int = 1, noise: bool = True) -> Ways:
    """The same with the third phase, in groups of 16."""
    return {"H, V and third phase": lambda _: replay(quiet(REPLAY, noise), REPLAY.most, True, repetitions)}


def bad(seed: int, count: int, faults: int, mode: FailureMode | None = None) -> tuple[Cluster, Belief]:
    """So many faulty machines anywhere; nobody is suspected."""
    rng = random.Random(seed)
    shows = mode.manifestation if mode else 1.0
    found = dict.fromkeys(rng.sample(names(count), faults), shows)
    return Cluster(seed, found), begin(names(count), modes=(mode or FIXED,))


def suspected(seed: int, rightly: bool) -> tuple[Cluster, Belief]:
    """One faulty machine: drawn from 8 suspects by their weight; or, which the belief holds for 1 in 10, any of the others."""
    rng = random.Random(seed)
    weights = {name: rng.uniform(0.2, 1) for name in rng.sample(names(1024), 8)}
    belief = begin(names(1024), weights, none=0.1, others=0.1)
    among = {name: weight for name, weight in belief.machines.items() if (name in weights) == rightly}
    culprit = rng.choices(list(among), list(among.values()))[0]
    return Cluster(seed, {culprit: 1.0}), belief


def network(seed: int, leaf: bool) -> tuple[Cluster, Belief]:
    """64 machines under four leafs, and either one leaf or the link between two machines is faulty."""
    rng = random.Random(seed)
    machines = names(64)
    leafs = {f"leaf{at}": tuple(machines[16 * at : 16 * at + 16]) for at in range(4)}
    belief = begin(machines, leafs=leafs, leaf=0.1, link=0.1)
    if leaf:
        return Cluster(seed, {}, leafs={frozenset(leafs[f"leaf{rng.randrange(4)}"]): 1.0}), belief
    return Cluster(seed, {}, links={frozenset(rng.sample(machines, 2)): 1.0}), belief
