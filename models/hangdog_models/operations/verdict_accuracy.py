"""How often verdicts were right, by what people and tests settled; where nobody settled anything there is no figure."""

import math
from collections.abc import Iterable, Mapping, Sequence

from hangdog_models.incident import SettledCause
from hangdog_models.machine_history import MentionKind
from hangdog_models.operations.evictions import RIGHT, WRONG
from hangdog_models.operations.past_events import MachineMention, MachineTestRecord, PastIncident
from hangdog_models.operations.report import Figure, share
from hangdog_models.verdict import Kind, StallCause

#: Where the parts begin by which verdicts are sorted: one that names a cause is at least half sure, and the steps from there
#: to certainty are what somebody acts upon or not.
PARTS = (0.5, 0.7, 0.9, 0.97)
#: What people and tests settle, as the definitions say it.
_SETTLED = "settled with `hangdog resolve`, else by a campaign for the incident that convicted a machine"


def settled_causes(
    incidents: Iterable[PastIncident], trials: Iterable[MachineTestRecord]
) -> Mapping[str, SettledCause]:
    """What each incident turned out to be: people's word, else whom campaigns for it convicted; of the others nothing is known."""
    convicted: dict[str, set[str]] = {}
    for one in trials:
        if one.convicted and one.incident:
            convicted.setdefault(one.incident, set()).add(one.machine)
    found = {name: SettledCause(StallCause.MACHINE, tuple(sorted(those))) for name, those in convicted.items()}
    return found | {one.id: one.settled for one in incidents if one.settled is not None}


def figures(
    incidents: Iterable[PastIncident],
    stated: Iterable[MachineMention],
    settled: Mapping[str, SettledCause],
    evicted: Mapping[str, int],
) -> tuple[Figure, ...]:
    """The figures of which there are cases; `evicted` counts the machines that were taken by what became known of them."""
    known = [one for one in incidents if one.kind and one.id in settled]
    right = sum(_right(one, settled) for one in known)
    blamed = [one for one in known if settled[one.id].machines]
    first = _first(stated)
    met = sum(one.id in first and first[one.id] <= set(settled[one.id].machines) for one in blamed)
    wrong, tried = sum(evicted.get(one, 0) for one in WRONG), sum(evicted.get(one, 0) for one in (*RIGHT, *WRONG))
    shares = (
        share(
            "right_cause", "verdicts with the right cause", right, len(known), len(known), "verdicts settled",
            f"Verdicts that name the cause that the incident turned out to have, of those {_SETTLED}. "
            "An undetermined verdict is not right.", "",
        ),
        share(
            "right_machine", "verdicts with the right machine first", met, len(blamed), len(blamed), "verdicts settled",
            "Verdicts whose likeliest machines were guilty, all of them, of those incidents of which the guilty machines are "
            "known.", "",
        ),
        share(
            "innocent", "evictions of innocent machines", wrong, tried, tried, "machines taken",
            "Machines that were taken out of use and turned out innocent, by people's word or by tests, of those of which "
            "either is known.", "",
        ),
        *_by_confidence(known, settled),
    )  # fmt: skip
    return tuple(one for one in shares if one.count)


def _by_confidence(known: Sequence[PastIncident], settled: Mapping[str, SettledCause]) -> Iterable[Figure]:
    """How many verdicts had the right cause beside the probability that they gave it, in a few parts."""
    named = [one for one in known if one.kind != Kind.UNDETERMINED]
    for begins, ends in zip(PARTS, (*PARTS[1:], None), strict=True):
        part = [one for one in named if begins <= one.confidence and (ends is None or one.confidence < ends)]
        to = f"to {100 * ends:.0f}%" if ends is not None else "or more"
        mean = math.fsum(one.confidence for one in part) / len(part) if part else 0.0
        yield share(
            f"sure_{100 * begins:.0f}", f"right where {100 * begins:.0f}% {to} sure", sum(_right(one, settled) for one in part),
            len(part), len(part), "verdicts settled",
            f"Verdicts with the right cause, of those that were so sure of theirs: {100 * mean:.1f}% on average.", "",
        )  # fmt: skip


def _right(one: PastIncident, settled: Mapping[str, SettledCause]) -> bool:
    return settled[one.id].cause == (StallCause.HEALTHY if one.kind == Kind.NONE else one.kind)


def _first(stated: Iterable[MachineMention]) -> Mapping[str, set[str]]:
    """The machines of the likeliest hypothesis of each incident."""
    best: dict[str, tuple[float, set[str]]] = {}
    for one in stated:
        if one.kind is MentionKind.CLEARED:
            continue
        probability, machines = best.get(one.incident, (-1.0, set()))
        if one.probability > probability:
            best[one.incident] = one.probability, {one.machine}
        elif one.probability == probability:
            machines.add(one.machine)
    return {incident: machines for incident, (_, machines) in best.items()}
