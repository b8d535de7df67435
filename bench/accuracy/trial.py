"""Trials: every incident judged by both methods from each level of evidence, in this process or in several."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import process_time

from accuracy import peer
from accuracy.measure import Answer, Score, of_peer, of_verdict, score
from accuracy.simulator.incident import Evidence, Incident, Truth
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.snapshot import Snapshot
from hangdog_models.verdict import Kind

#: What makes an incident: its seed, its ranks and its fault.
Task = tuple[int, int, str]

#: Incidents of a quick run, five of each fault: on two cores they take a minute.
QUICK = 310
#: The largest job of a quick run, in ranks; a large job costs as much as fifty small ones and shows the same faults.
QUICK_RANKS = 256


@dataclass(frozen=True, slots=True)
class Side:
    """What one method answered, what that is worth, and how many CPU seconds it took; `crash` says why there is no answer."""

    answer: Answer
    score: Score
    seconds: float
    crash: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One incident seen through one level of evidence. `guilty` are machines, `kinds` the verdicts that are right.

    `looks` counts the rounds of its snapshot. `cleaned` is the peer given stacks that hangdog has cleaned: it parts what cleaning is worth from what reasoning is.
    """

    seed: int
    ranks: int
    fault: str
    family: str
    framework: str
    evidence: Evidence
    kinds: tuple[Kind, ...]
    guilty: tuple[str, ...]
    looks: int
    ours: Side
    theirs: Side
    cleaned: Side


def judge(incident: Incident) -> tuple[Trial, ...]:
    """Both answers to every snapshot of one incident."""
    truth, topology = incident.truth, incident.topology

    def mine(snapshot: Snapshot) -> Answer:
        return of_verdict(diagnose(snapshot, topology), truth)

    def peers(snapshot: Snapshot) -> Answer:
        return of_peer(peer.aggregate(snapshot, topology))

    def peers_cleaned(snapshot: Snapshot) -> Answer:
        return of_peer(peer.aggregate(snapshot, topology, peer.cleaned))

    return tuple(
        Trial(
            incident.seed,
            topology.world_size,
            truth.fault,
            truth.family,
            incident.framework,
            evidence,
            truth.kinds,
            truth.machines,
            len(snapshot.rounds),
            ours=_ask(mine, snapshot, truth),
            theirs=_ask(peers, snapshot, truth),
            cleaned=_ask(peers_cleaned, snapshot, truth),
        )
        for evidence, snapshot in incident.snapshots.items()
    )


def _ask(method: Callable[[Snapshot], Answer], snapshot: Snapshot, truth: Truth) -> Side:
    began = process_time()
    try:
        answer, crash = method(snapshot), ""
    except Exception as error:  # noqa: BLE001  (a method that fails on one incident has no answer there; the run goes on)
        answer, crash = Answer((), ()), f"{type(error).__name__}: {error}"
    return Side(answer, score(answer, truth), process_time() - began, crash)


def make_and_judge(task: Task) -> tuple[Trial, ...]:
    """Simulates one incident, once, and judges it. An incident that cannot be made is named: it is a bug of ours."""
    from accuracy.simulator.make import incident  # only here: what judges an incident made by hand needs no simulator

    seed, ranks, fault = task
    try:
        made = incident(seed, ranks, fault)
    except Exception as error:  # whatever it is, nobody can repeat it without these three
        raise RuntimeError(f"incident({seed}, {ranks}, {fault!r}) cannot be made") from error
    return judge(made)


def run(tasks: Sequence[Task], jobs: int, done: Callable[[], object] = lambda: None) -> list[Trial]:
    """All trials, ordered by incident and evidence whatever the number of processes; `done` is called once an incident.

    The largest jobs go first, so that no process ends long after the others.
    """
    found: list[Trial] = []

    def take(batches: Iterable[tuple[Trial, ...]]) -> None:
        for trials in batches:
            found.extend(trials)
            done()

    ordered = sorted(tasks, key=lambda task: (-task[1], task))
    if jobs <= 1 or len(tasks) <= 1:
        take(map(make_and_judge, ordered))
    else:
        # spawn: a fork would copy the thread that draws the progress line in the middle of its work
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            take(pool.imap_unordered(make_and_judge, ordered))
    order = list(Evidence)
    return sorted(found, key=lambda trial: (trial.ranks, trial.fault, trial.seed, order.index(trial.evidence)))


def select(
    tasks: Iterable[Task], fault: str | None = None, ranks: int | None = None, seeds: range | None = None
) -> list[Task]:
    """The incidents of one fault, one size, or some seeds."""
    return [
        task
        for task in tasks
        if (fault is None or task[2] == fault)
        and (ranks is None or task[1] == ranks)
        and (seeds is None or task[0] in seeds)
    ]


def quick(tasks: Iterable[Task], count: int = QUICK) -> list[Task]:
    """About `count` of the small incidents: every fault as often as every other, spread evenly over what there is."""
    of: dict[str, list[Task]] = {}
    for task in tasks:
        if task[1] <= QUICK_RANKS:
            of.setdefault(task[2], []).append(task)
    each = max(1, count // max(1, len(of)))
    return list(_spread(of.values(), each))


def _spread(sets: Iterable[Sequence[Task]], each: int) -> Iterator[Task]:
    for tasks in sets:
        taken = min(each, len(tasks))
        yield from (tasks[at * len(tasks) // taken] for at in range(taken))
