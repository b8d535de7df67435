"""Families of past incidents: which are of one kind, how many kinds there are, and which kind a new one is of.

The number of kinds is unknown, and most incidents are the only one of theirs. So they are clustered by density. An
incident in no cluster is a kind of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from hangdog_models.diagnosis.clustering.density import density
from hangdog_models.diagnosis.clustering.distance import CUT, SLEEPS
from hangdog_models.past_incidents import EarlierIncident, Family, IncidentFeatures
from hangdog_models.rules.ruleset import last_component

#: Distance below which two incidents are of one kind, whatever surrounds them.
NEAR = 0.2
#: Incidents that make a family of different call sites; fewer are kinds of their own, unless they are alike.
LEAST = 3
#: The weight of a frame relative to the one that it calls: what the culprit does matters more than how it came there.
OUTWARDS = 0.5
#: Distance for each frame that one culprit is deeper in than the other, at the same call.
DEEPER = 0.25
#: Distance of two with different activities by the rules, and of two whose other ranks all wait elsewhere.
DOES, OTHERS = 0.15, 0.15
#: So many different call sites are compared, of the latest incidents. Older ones at other call sites are left out.
PLACES = 100

#: From distances, and the number of incidents at each call site, to the family number of each.
Density = Callable[[Sequence[Sequence[float]], Sequence[int]], list[int]]


def by_density(distances: Sequence[Sequence[float]], counts: Sequence[int]) -> list[int]:
    """HDBSCAN: two dense crowds are two families, however near, and a chain of odd ones joins none."""
    return density(distances, counts, whole=NEAR, least=LEAST)


def families(past: Sequence[EarlierIncident], split: Density = by_density) -> tuple[Family, ...]:
    """The past incidents by kind; `past` is newest first.

    The library is loaded only where call sites differ by little.
    """
    at: dict[IncidentFeatures, list[EarlierIncident]] = {}
    for one in past:
        kind = _without_names(one.features)
        if kind in at or len(at) < PLACES:
            at.setdefault(kind, []).append(one)
    places = list(at)
    square = [[0.0] * len(places) for _ in places]
    for i, place in enumerate(places):
        for j in range(i):
            square[i][j] = square[j][i] = apart(place, places[j])
    found: list[Family] = []
    for members in _linked(square):
        near = [[square[i][j] for j in members] for i in members]
        numbers = split(near, [len(at[places[i]]) for i in members])
        for number in dict.fromkeys(numbers):
            inside = [i for i, mine in zip(members, numbers, strict=True) if mine == number]
            found.append(tuple(one for i in inside for one in at[places[i]]))
    return tuple(found)


def family_of(features: IncidentFeatures, known: Sequence[Family]) -> Family:
    """The family with the incident that is most like this one; empty if it is the first of its kind."""
    nearest = min(
        ((apart(features, one.features), at) for at, family in enumerate(known) for one in family),
        default=(1.0, 0),
    )
    return known[nearest[1]] if nearest[0] < CUT else ()


def apart(one: IncidentFeatures, other: IncidentFeatures) -> float:
    """The distance of two incidents: 0 is the same call site and the same waits, 1 surely another kind.

    If one has evidence against the machine itself, an incident without that evidence is of another kind.
    """
    if (one.evidence or other.evidence) and not set(one.evidence).intersection(other.evidence):
        return 1.0
    here, there = _steps(one.place), _steps(other.place)
    if not here or not there or not set(here).intersection(there):
        return 1.0
    deeper = 0
    for outer, inner in ((here, there), (there, here)):
        if outer[0] in inner:  # from inside to outside
            deeper = inner.index(outer[0])
            here, there = outer, inner[deeper:]
            break
    distance = 1 - _alike(here, there) + DEEPER * deeper
    distance += DOES * (one.activity != other.activity)
    waits = dict(one.waits)
    distance += OTHERS * (1 - sum(min(share, waits.get(wait, 0.0)) for wait, share in other.waits))
    return min(1.0, max(0.0, distance))


def _without_names(features: IncidentFeatures) -> IncidentFeatures:
    """The features without machine and ranks, which are no part of the kind."""
    return replace(features, machine="", ranks=())


@lru_cache(maxsize=1024)
def _steps(place: tuple[str, ...]) -> tuple[str, ...]:
    """The frames from inside to outside, each once, without those that only sleep."""
    steps = list(dict.fromkeys(reversed(place)))
    while len(steps) > 1 and last_component(steps[0].partition(" (")[0]) in SLEEPS:
        steps.pop(0)
    return tuple(steps)


def _alike(here: Sequence[str], there: Sequence[str]) -> float:
    """What two paths share in the same order, 0 to 1; frames count more the nearer they are to the inside."""
    best = [0.0] * (len(there) + 1)
    for i, step in enumerate(here):
        row = [0.0]
        for j, other in enumerate(there):
            both = best[j] + OUTWARDS ** max(i, j) if step == other else 0.0
            row.append(max(both, best[j + 1], row[j]))
        best = row
    return 2 * best[-1] / sum(OUTWARDS**i for way in (here, there) for i in range(len(way)))


def _linked(square: Sequence[Sequence[float]]) -> list[list[int]]:
    """The call sites that a chain of near ones joins: only these can be one family."""
    left = dict.fromkeys(range(len(square)))
    found = []
    while left:
        members = [next(iter(left))]
        del left[members[0]]
        for i in members:
            near = [j for j in left if square[i][j] < CUT]
            members += near
            for j in near:
                del left[j]
        found.append(sorted(members))
    return found
