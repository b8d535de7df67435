"""What it is worth to know earlier incidents of the same kind: verdicts upon recurring ones, with and without their history.

    python bench/families.py [--first SEED] [--seeds N]       default: 60 seeds from 0 on

Incidents of the accuracy benchmark's simulator, 16 ranks each, that one rank's place causes (a loader, a lock, a request, ...).
Those of one fault and one framework recur, five to eight times, in jobs of one cluster of 64 machines. In one half of these
series the machine is to blame: it is the same one each time, at another place in each job. In the other half the code is: the
machines are drawn anew each time. Stacks and counters are the same in both halves, so without a history nothing can tell them
apart. Each series is judged in both halves. Some frames of the culprit's stack differ from time to time: helpers, or calls
further inside. Each framework is one user's program: the last incident of each series is judged with all that its user's
jobs had before, of every series. The rows:

    none       without a history
    same       earlier incidents count where the culprit's stack is equal, frame by frame
    chained    where a chain of near ones leads to it, without a density
    linkage    by average linkage
    density    as hangdog does: families by HDBSCAN, and the nearest one within reach

The columns are shares: `machine` of the series of machines that are called so, `evicted` of them whose machine is evicted,
`code` of the series of code that are called software or a dependency, `innocent` of them in which a machine is evicted,
`right` of all. `rand` is the adjusted Rand index of the families against the series.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from msgspec import structs

from accuracy.simulator.incident import Evidence, Incident
from accuracy.simulator.make import incident
from clustering import HELPERS, rand
from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.clustering.incident_families import Density, by_density, families
from hangdog_models.diagnosis.clustering.incident_features import of_verdict
from hangdog_models.diagnosis.clustering.linkage import linkage
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.past_incidents import EarlierIncident, Family, IncidentFeatures
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Frame, ProcessTrace
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Verdict

FAULTS = (
    "dataloader", "dataloader workers", "lock", "interpreter lock", "storage", "checkpoint writer", "network call",
    "native deadlock", "subprocess", "garbage collection", "compile",
)  # fmt: skip
RANKS, FLEET = 16, 64
#: Incidents of a series: too few show nothing that recurs, and more count for no more.
LEAST, MOST = 5, 8
#: Probability that a culprit's stack has another helper, and another call inside.
HELPER, INNER = 0.3, 0.15
DAY_S = 86400.0
NOT_THE_MACHINE = (Kind.SOFTWARE, Kind.DEPENDENCY)


@dataclass(frozen=True)
class Case:
    """One incident as a machine or the code makes it recur: who is guilty (empty: nobody), and what is judged."""

    series: str
    guilty: str
    snapshot: Snapshot
    topology: Topology
    features: IncidentFeatures

    @property
    def user(self) -> str:
        return self.series.partition(", ")[2]


def jittered(trace: ProcessTrace, chance: Random) -> ProcessTrace:
    """The trace of the culprit as it is another time: the same place, with other helpers on the way, or a call further in."""
    if not trace.threads:
        return trace
    main, *others = trace.threads
    found = list(main.frames)
    if chance.random() < HELPER and len(found) > 2:
        found.insert(chance.randrange(1, len(found)), Frame(*chance.choice(HELPERS), 1))
    if chance.random() < INNER and found and not found[-1].native:
        found.append(Frame("_check", found[-1].file, 1))
    return structs.replace(trace, threads=(structs.replace(main, frames=tuple(found)), *others))


def placed(one: Incident, guilty: str, chance: Random) -> tuple[Snapshot, Topology]:
    """The incident on machines of the cluster; `guilty`: on which one its culprit is (empty: on any)."""
    names = chance.sample([f"gpu-{number:02}" for number in range(FLEET)], len(one.topology.machines))
    if guilty:
        names = [guilty, *(name for name in names if name != guilty)]
    order = sorted(one.topology.machines, key=lambda machine: machine not in one.truth.machines)
    called = dict(zip(order, names, strict=False))
    topology = replace(
        one.topology, machines={called[machine]: ranks for machine, ranks in one.topology.machines.items()}
    )
    snapshot, ranks = one.snapshots[Evidence.STACKS], set(one.truth.ranks)
    rounds = []
    draw = chance.random()
    for round_ in snapshot.rounds:  # the same jitter in each look
        traces = (
            jittered(trace, Random(f"{draw} {trace.rank}")) if trace.rank in ranks else trace for trace in round_.traces
        )
        rounds.append(replace(round_, traces=tuple(traces)))
    return replace(snapshot, rounds=tuple(rounds)), topology


def series(seeds: range) -> dict[str, list[Incident]]:
    """Incidents of one fault and one framework, whose culprit's place is seen."""
    found: dict[str, list[Incident]] = {}
    for fault in FAULTS:
        for seed in seeds:
            one = incident(seed, RANKS, fault)
            features = of_verdict(diagnose(one.snapshots[Evidence.STACKS], one.topology))
            # a framework that no rule knows has names of its own in each incident: nothing of it recurs
            if one.framework != "unknown" and features is not None and features.machine in one.truth.machines:
                found.setdefault(f"{fault}, {one.framework}", []).append(one)
    return {name: them[:MOST] for name, them in found.items() if len(them) >= LEAST}


def cases(recurring: Mapping[str, Sequence[Incident]], flipped: bool) -> Iterator[list[Case]]:
    """Each series as one history; machines and code take turns, and with `flipped` the other way round."""
    for number, (name, incidents) in enumerate(recurring.items()):
        chance = Random(f"{name} {flipped}")
        guilty = f"gpu-{chance.randrange(FLEET):02}" if (number % 2 == 1) != flipped else ""
        made = []
        for one in incidents:
            snapshot, topology = placed(one, guilty, chance)
            features = of_verdict(diagnose(snapshot, topology))
            if features is not None:
                made.append(Case(name, guilty, snapshot, topology, features))
        if len(made) >= LEAST:
            yield made


Recall = Callable[[Case, Sequence[EarlierIncident]], tuple[Family, ...]]


def same(case: Case, past: Sequence[EarlierIncident]) -> tuple[Family, ...]:
    alike = tuple(one for one in past if one.features.place == case.features.place)
    return (alike,) if alike else ()


def chained(distances: Sequence[Sequence[float]], counts: Sequence[int]) -> list[int]:
    return [0] * len(counts)


FAMILIES: Mapping[str, Density] = {"chained": chained, "linkage": linkage, "density": by_density}


def by_family(split: Density) -> Recall:
    return lambda case, past: families(past, split)


RECALLS: Mapping[str, Recall] = {
    "none": lambda case, past: (),
    "same": same,
    **{name: by_family(split) for name, split in FAMILIES.items()},
}


def agreement(past: Sequence[EarlierIncident], known: Sequence[Family], name_of: Mapping[str, str]) -> float:
    """The adjusted Rand index of families against the series that their incidents are of."""
    number = {one.id: Rank(at) for at, one in enumerate(past)}
    sample = None
    clusters = [Cluster(tuple(number[one.id] for one in family), sample) for family in known]  # type: ignore[arg-type]
    truth = {rank: name_of[id_] for id_, rank in number.items() if any(rank in c.ranks for c in clusters)}
    return rand(clusters, truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=60)
    asked = parser.parse_args()
    recurring = series(range(asked.first, asked.first + asked.seeds))
    rows: dict[str, list[tuple[Case, Verdict]]] = {name: [] for name in RECALLS}
    indices: dict[str, list[float]] = {name: [] for name in RECALLS}
    for flipped in (False, True):
        chains = list(cases(recurring, flipped))
        for user in sorted({chain[0].user for chain in chains}):
            mine = [chain for chain in chains if chain[0].user == user]
            before = [case for chain in mine for case in chain[:-1]]
            Random(user).shuffle(before)  # incidents of all series come in turn
            past = [EarlierIncident(f"{at:03}", (at + 1) * DAY_S, case.features) for at, case in enumerate(before)]
            name_of = {f"{at:03}": case.series for at, case in enumerate(before)}
            for name, recall in RECALLS.items():
                for *_, last in mine:
                    known = recall(last, past)
                    rows[name].append((last, diagnose(replace(last.snapshot, past=known), last.topology)))
                if name in FAMILIES and len(mine) > 1:
                    indices[name].append(agreement(past, families(past, FAMILIES[name]), name_of))
    total = len(rows["none"])
    machines = sum(bool(case.guilty) for case, _ in rows["none"])
    print(f"{len(recurring)} series, {machines} times a machine's, {total - machines} times the code's\n")
    print(f"{'history':10} {'machine':>8} {'evicted':>8} {'code':>8} {'innocent':>9} {'right':>8} {'rand':>6}")
    for name, judged in rows.items():
        guilty = [(case, verdict) for case, verdict in judged if case.guilty]
        code = [(case, verdict) for case, verdict in judged if not case.guilty]
        called = [verdict.kind is Kind.MACHINE for _, verdict in guilty]
        spared = [verdict.kind in NOT_THE_MACHINE for _, verdict in code]
        figures = (
            fmean(called),
            fmean(case.guilty in verdict.evict.machines for case, verdict in guilty),
            fmean(spared),
            fmean(bool(verdict.evict.machines) for _, verdict in code),
            fmean([*called, *spared]),
        )
        index = f"{fmean(indices[name]):6.2f}" if indices[name] else f"{'-':>6}"
        print(
            f"{name:10} {figures[0]:8.0%} {figures[1]:8.0%} {figures[2]:8.0%} {figures[3]:9.0%} {figures[4]:8.0%} {index}"
        )


if __name__ == "__main__":
    main()
