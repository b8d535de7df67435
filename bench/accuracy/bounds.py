"""What hangdog must reach on the default set, each bound with its reason; the only place where these numbers stand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accuracy.figures import Figures, figures, ours, theirs
from accuracy.simulator.incident import Evidence
from accuracy.trial import Trial

#: A full run has at least so many incidents: at 99 % containment, ten misses of a thousand are told from chance.
INCIDENTS = 2_000
#: A rank whose host stands still shows it in its own stack: stacks alone must find it.
HOST_CONTAINMENT = 0.99
#: One machine is guilty; a fifth more is the price of the cases in which two explain it equally well.
HOST_MACHINES = 1.2
#: A device or link shows in no stack, but counters tell who joined and who is behind.
COUNTED_CONTAINMENT = 0.99
#: Of devices and links together: half a machine more, for at which end of a pair the fault is no counter tells.
COUNTED_MACHINES = 1.5
#: A wrong eviction costs a healthy machine and a restart that hangs again: one in a thousand.
WRONG = 0.001
#: Code of a rank's own, or what it asks for outside, holds the job up: who does is seen in its stack, and its machine is sound.
OWN_WORK_FIRST = 0.95
#: Two faults at once hide each other: the second may be seen only after the first is gone.
TWO_CONTAINMENT = 0.95

#: Evidence without counters: here hangdog knows what the peer knows.
UNCOUNTED = (Evidence.STACKS, Evidence.NATIVE)
#: Families in which nobody is to be evicted.
INNOCENT = ("own work", "software", "dependency", "healthy")
#: Families of one fault that sits in machines.
GUILTY = ("host", "device", "link", "slow")


@dataclass(frozen=True, slots=True)
class Reading:
    """A bound held against a run: what was reached, what had to be, and what the peer reached on the same incidents."""

    name: str
    trials: int
    reached: float
    limit: float
    at_least: bool
    peer: float | None

    @property
    def met(self) -> bool:
        return self.reached >= self.limit if self.at_least else self.reached <= self.limit


@dataclass(frozen=True, slots=True)
class Bound:
    """`figure` of the trials of `families` with `evidence` must be at least (or at most) `limit`."""

    name: str
    families: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    figure: Callable[[Figures], float | None]
    limit: float
    at_least: bool

    def read(self, trials: Sequence[Trial]) -> list[Reading]:
        """The reading, none where the run has no such trial."""
        chosen = _of(trials, self.families, self.evidence)
        reached = self.figure(figures(chosen, ours))
        if reached is None:
            return []
        peer = self.figure(figures(chosen, theirs))
        return [Reading(self.name, len(chosen), reached, self.limit, self.at_least, peer)]


def held(of: Figures) -> float | None:
    """Containment, where a group too wide to evict counts when it is named: its verdict proposes how to narrow it."""
    return None if of.contained is None or of.named is None else of.contained + of.named


def _contained(of: Figures) -> float | None:
    return of.contained


def _per_fault(of: Figures) -> float | None:
    return of.per_fault


STACKS, RECORDER = (Evidence.STACKS,), (Evidence.RECORDER,)
BOUNDS = (
    Bound("host faults, stacks: contained", ("host",), STACKS, _contained, HOST_CONTAINMENT, True),
    Bound("host faults, stacks: machines a fault", ("host",), STACKS, _per_fault, HOST_MACHINES, False),
    Bound("device faults, recorder: contained or named", ("device",), RECORDER, held, COUNTED_CONTAINMENT, True),
    Bound("link faults, recorder: contained or named", ("link",), RECORDER, held, COUNTED_CONTAINMENT, True),
    Bound(
        "devices and links, recorder: machines a fault",
        ("device", "link"),
        RECORDER,
        _per_fault,
        COUNTED_MACHINES,
        False,
    ),
    Bound("nobody guilty: evicted wrongly", INNOCENT, tuple(Evidence), lambda of: of.wrong, WRONG, False),
    Bound(
        "own work, stacks: its rank is the first suspect",
        ("own work",),
        STACKS,
        lambda of: of.top1,
        OWN_WORK_FIRST,
        True,
    ),
    Bound("two faults: both contained", ("two",), tuple(Evidence), _contained, TWO_CONTAINMENT, True),
)


def readings(trials: Sequence[Trial]) -> list[Reading]:
    """Every bound held against these trials, those left out of which the run has no trial."""
    found = [reading for bound in BOUNDS for reading in bound.read(trials)]
    for family in GUILTY:
        found += against_peer(trials, family)
    return found


def against_peer(trials: Sequence[Trial], family: str) -> list[Reading]:
    """Without counters, no less containment than the peer; and where both evict, no more machines than it."""
    chosen = _of(trials, (family,), UNCOUNTED)
    mine, peers = held(figures(chosen, ours)), held(figures(chosen, theirs))
    if mine is None or peers is None:
        return []
    found = [
        Reading(f"{family} faults, no counters: contained, beside the peer", len(chosen), mine, peers, True, peers)
    ]
    both = [trial for trial in chosen if trial.ours.score.evicted and trial.theirs.score.evicted]
    cost, price = figures(both, ours).evicted, figures(both, theirs).evicted
    if cost is not None and price is not None:
        name = f"{family} faults, no counters: machines, where both evict"
        found.append(Reading(name, len(both), cost, price, False, price))
    return found


def _of(trials: Sequence[Trial], families: Sequence[str], evidence: Sequence[Evidence]) -> list[Trial]:
    return [trial for trial in trials if trial.family in families and trial.evidence in evidence]
