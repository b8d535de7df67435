"""What one answer is worth against the truth of an incident. Pure: no answer is run here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb

from accuracy.peer import PeerAnswer
from accuracy.simulator.incident import Truth
from hangdog_models.verdict import Kind, Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """What either method said, in terms both share.

    `suspects` are the machines of each hypothesis, most suspicious first. `kind`, `probability` (of the first suspect)
    and `confidence` (of the kind) are None for a method that gives none. `together`: all ranks that it saw are in one cluster.
    """

    evicted: tuple[str, ...]
    suspects: tuple[tuple[str, ...], ...]
    kind: Kind | None = None
    probability: float | None = None
    confidence: float | None = None
    together: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """One answer weighed. `guilty` counts the machines that are, `evicted` those that would be taken out.

    `contained`: every guilty machine is evicted. `named`: nobody is evicted because the group is too wide for it, and
    every guilty machine is in that group. `caught` counts the guilty machines among the evicted. `wrong`: somebody is
    evicted though no machine is guilty. `abstained`: no cause is named. `right`: the kind is a right one (None: no kind
    is given). `top1`, `top3`: the chance that a machine which is sought (guilty, or a sound one whose rank holds the job up) is
    among the first of the list, which shuffles the machines of one suspect (None: nobody is). `first`: the first suspect is true.
    """

    guilty: int
    evicted: int
    caught: int
    contained: bool
    named: bool
    wrong: bool
    abstained: bool
    right: bool | None
    top1: float | None
    top3: float | None
    first: bool


def of_verdict(verdict: Verdict, truth: Truth | None = None) -> Answer:
    """hangdog's answer. Where suspects only show where a fault of software or service surfaces, no machine is accused.

    Where by the `truth` one rank's own work holds the job up, they say who does.
    """
    surfaces = verdict.kind in (Kind.SOFTWARE, Kind.DEPENDENCY, Kind.NONE)
    blamed = () if surfaces and (truth is None or truth.family != "own work") else verdict.suspects
    return Answer(
        verdict.evict.machines,
        tuple(suspect.machines for suspect in blamed),
        verdict.kind,
        blamed[0].probability if blamed else None,
        verdict.confidence,
        len(verdict.clusters) == 1,
    )


def of_peer(answer: PeerAnswer) -> Answer:
    """The peer's answer: one suspect, the group it evicts."""
    return Answer(answer.machines, (answer.machines,) if answer.machines else ())


def score(answer: Answer, truth: Truth) -> Score:
    """Weighs one answer."""
    guilty, evicted, sought = set(truth.machines), set(answer.evicted), set(truth.sought)
    first = set(answer.suspects[0]) if answer.suspects else set()
    too_wide = answer.kind is Kind.GROUP and not evicted
    return Score(
        guilty=len(guilty),
        evicted=len(evicted),
        caught=len(guilty & evicted),
        contained=bool(guilty) and guilty <= evicted,
        named=bool(guilty) and too_wide and guilty <= first,
        wrong=not guilty and bool(evicted),
        abstained=answer.kind is Kind.UNDETERMINED or (answer.kind is None and not evicted),
        right=None if answer.kind is None else answer.kind in truth.kinds,
        top1=among_first(answer.suspects, sought, 1) if sought else None,
        top3=among_first(answer.suspects, sought, 3) if sought else None,
        first=_is_true(first, sought, truth),
    )


def among_first(suspects: Iterable[Sequence[str]], guilty: set[str], count: int) -> float:
    """The chance that one of the first `count` machines is guilty, when the machines of a suspect come in any order."""
    before: set[str] = set()
    for machines in suspects:
        fresh = [machine for machine in dict.fromkeys(machines) if machine not in before]
        room, bad = count - len(before), len(guilty.intersection(fresh))
        if room < len(fresh):
            return 1.0 - comb(len(fresh) - bad, room) / comb(len(fresh), room) if bad else 0.0
        if bad:
            return 1.0
        before.update(fresh)
        if len(before) == count:
            return 0.0
    return 0.0


def _is_true(first: set[str], guilty: set[str], truth: Truth) -> bool:
    """Whether a hypothesis about these machines is true: one machine by its guilt, several by holding a whole fault.

    Of two faults one is enough: a hypothesis says "here is a fault", not "here is every fault".
    """
    if len(first) <= 1 or truth.faults > 1:
        return bool(first & guilty)
    return bool(guilty) and guilty <= first
