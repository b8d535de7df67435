"""Where a campaign begins: suspicion from the diagnosis, a prior for all other machines, and their history."""

from collections.abc import Collection, Mapping, Sequence

from hangdog_models.planning.campaign.belief import Belief
from hangdog_models.planning.campaign.fault import FIXED, FailureMode

#: The probability of a fault that no stop-time diagnostic shows. ByteRobust found 22.7 % of its large jobs' incidents
#: gone on reattempt.
NONE = 0.2
#: The probability that it is an unsuspected machine, if some are suspected. By judgement: a verdict surer of its
#: suspects would have evicted them without a campaign.
OTHERS = 0.1
#: The probability of another fault beside one. ByteRobust calls one faulty machine the common case; others saw two in
#: about a twentieth of cases.
FURTHER = 0.05
#: What each earlier offence adds to a machine's weight of 1. By judgement: a few machines make most of a fleet's
#: repeated failures, yet one offence must not outweigh a present suspicion.
OFFENCE = 4.0


def begin(
    machines: Sequence[str],
    suspected: Mapping[str, float] | None = None,
    *,
    none: float = NONE,
    others: float = OTHERS,
    leafs: Mapping[str, tuple[str, ...]] | None = None,
    leaf: float = 0.0,
    link: float = 0.0,
    further: float = FURTHER,
    modes: tuple[FailureMode, ...] = (FIXED,),
    serials: Mapping[str, Collection[str]] | None = None,
    offences: Mapping[str, int] | None = None,
) -> Belief:
    """The belief before any launch.

    - `machines`: in the topology's order; neighbours are tested together.
    - `suspected`: relative weights. Together they have what `none`, `leaf`, `link` and `others` leave.
    - `others`: shared by all other machines; they have everything if none is suspected.
    - `offences`: by serial number of GPUs or machines, how often each was convicted before.
    - `serials`: which of these are in which machine now, so that history moves with the parts.

    Raises ValueError for an unknown or repeated machine, or a negative weight.
    """
    weights = dict(suspected or {})
    if strange := weights.keys() - set(machines):
        raise ValueError(f"suspected are machines that are not there: {', '.join(sorted(strange)[:3])}")
    if any(weight < 0 for weight in weights.values()) or len(set(machines)) < len(machines):
        raise ValueError("a suspicion is never negative, and a machine is named once")
    record = {name: _record((serials or {}).get(name, ()), offences or {}) for name in machines}
    inside = {name: weight * record[name] for name, weight in weights.items() if weight > 0}
    outside = {name: record[name] for name in machines if name not in inside}
    left = 1 - none - leaf - link
    of_others = 0.0 if not outside else left if not inside else min(others, left)
    prior = _scaled(inside, left - of_others) | _scaled(outside, of_others)
    return Belief({name: prior[name] for name in machines}, none, leafs or {}, leaf, link, further, modes)


def _record(parts: Collection[str], offences: Mapping[str, int]) -> float:
    return 1 + OFFENCE * sum(offences.get(part, 0) for part in set(parts))


def _scaled(weights: Mapping[str, float], to: float) -> dict[str, float]:
    total = sum(weights.values())
    return {name: to * weight / total for name, weight in weights.items()}
