"""Explanations by roots: ranks that wait for nobody while the others wait for them."""

from collections.abc import Mapping

from hangdog_models.diagnosis.activity import Standing
from hangdog_models.diagnosis.counters import BY_COUNTERS
from hangdog_models.diagnosis.hypothesis import Hypothesis
from hangdog_models.diagnosis.motion import Look, Motion
from hangdog_models.diagnosis.odds import odds_of
from hangdog_models.diagnosis.ras import BY_RAS
from hangdog_models.diagnosis.waits import Waits
from hangdog_models.diagnosis.wording import are, ranks_of, reasons
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Kind

#: What a second look that shows the same stack adds: what lasts is not a moment of a healthy step.
STILL = 2.0
#: What is left when the rank moved between looks although all who wait for it did not: busy, perhaps for ever.
MOVING = 0.8
#: A rank that gets on with something else between looks is held up by its work rather than by its machine.
TRAVELLING, TRAVELLING_SLOW = 0.3, 4.0
#: In a single look a rank that runs is remarkable when so many wait for it; in a small healthy job one often runs alone.
REMARKABLE = 16
#: Above this share of the roots' best odds, a machine is a candidate beside the best one.
RIVAL = 0.25
#: Up to so many roots, each is asked by itself what it explains.
ASKED_ALONE = 32
#: Of several machines so many are weighed one by one: of fifty equal ones none has a probability worth naming.
NAMED_ALONE = 50
#: Odds of a rank that alone does not answer NCCL RAS while all its peers do.
SILENT = 40.0
#: Activities in which a process waits for itself.
_OWN = {Activity.LOCK, Activity.GIL, Activity.GC}
#: What is left of them when nobody was seen to wait for the rank.
UNAWAITED = 0.2
#: What is left of a machine's odds when other machines have a rank at the very same place: chance does not do that.
ALIKE = 0.3
#: Activities of which a service shared by many machines may be the cause.
_SHARED = {Activity.STORAGE, Activity.CHECKPOINT, Activity.DATALOADER, Activity.NETWORK, Activity.RENDEZVOUS}


def blame_roots(look: Look, waits: Waits, motion: Motion, topology: Topology) -> list[Hypothesis]:
    """Explanations by ranks that wait for nobody while others wait: machines, a shared cause, or merely a slow one."""
    explained = _explained(look, waits)
    scored = {rank: _score(rank, look[rank], waits, motion) * explained[rank] for rank in waits.roots}
    units: dict[str, list[Rank]] = {}
    for rank, score in scored.items():
        if score > 0:
            units.setdefault(topology.machine(rank) or f"rank {rank}", []).append(rank)
    if not units:
        return []
    best = {unit: max(scored[rank] for rank in ranks) for unit, ranks in units.items()}
    top = max(best.values())
    rivals = [unit for unit in units if best[unit] >= RIVAL * top]
    guilty = {unit: [r for r in units[unit] if scored[r] >= RIVAL * best[unit]] for unit in units}
    first = max(scored, key=lambda rank: (scored[rank], -rank))
    lead = look[first]
    if len(rivals) > 1:
        return _several(rivals, guilty, best, look, waits)
    found = [
        Hypothesis(Kind.MACHINE, odds, tuple(guilty[unit]), (unit,), reasons(guilty[unit], look, waits, motion))
        for unit, odds in best.items()
    ]
    ranks = tuple(guilty[rivals[0]])
    why = reasons(ranks, look, waits, motion)
    odds = odds_of(lead)
    found.append(Hypothesis(Kind.SOFTWARE, odds.software, ranks, tuple(rivals), why))
    found.append(Hypothesis(Kind.DEPENDENCY, odds.dependency, ranks, tuple(rivals), why))
    slow = odds.slow * (0.3 if first in motion.still else TRAVELLING_SLOW if first in motion.travelling else 1)
    found.append(Hypothesis(Kind.SLOW, slow, ranks, tuple(rivals), why))
    return found


def _score(rank: Rank, standing: Standing, waits: Waits, motion: Motion) -> float:
    odds = odds_of(standing).machine
    if standing.rule == BY_COUNTERS:
        odds = 4.0  # counters tell who is behind, not what holds it
    if rank in motion.still:
        odds *= STILL
    elif rank in motion.moving:
        odds *= MOVING
    elif rank in motion.travelling:
        odds *= TRAVELLING
    elif standing.activity is Activity.COMPUTE:
        odds *= min(1.0, len(waits.waiting) / REMARKABLE)
    if standing.rule == BY_RAS:
        return SILENT
    if not waits.waiting:
        # Nobody waits: only a state that no healthy process stays in speaks for itself.
        lasting = rank in motion.still and standing.activity in (*_SHARED, *_OWN)
        speaks = lasting or standing.activity in (Activity.STOPPED, Activity.DEAD, Activity.STORAGE)
        return UNAWAITED * odds if speaks else 0.0
    return odds


def _explained(look: Look, waits: Waits) -> dict[Rank, float]:
    """For each root, the share of the waiting ranks that its standing there explains, never quite nothing.

    Where roots are many no single one is the cause: then all that do the same are asked together, which also keeps the
    cost linear in the ranks.
    """
    sides: dict[object, list[Rank]] = {}
    for rank in waits.roots:
        sides.setdefault(rank if len(waits.roots) <= ASKED_ALONE else look[rank].activity, []).append(rank)
    shares: dict[Rank, float] = {}
    for ranks in sides.values():
        reached = waits.reached_from({*ranks, *waits.loose}) | waits.loose
        share = len(reached) / len(waits.waiting) if waits.waiting else 1.0
        shares.update(dict.fromkeys(ranks, 0.05 + 0.95 * share))
    return shares


def _several(
    rivals: list[str], guilty: Mapping[str, list[Rank]], best: Mapping[str, float], look: Look, waits: Waits
) -> list[Hypothesis]:
    """Roots on several machines: a common cause when they stand alike, several faults when they do not."""
    ranks = tuple(sorted(rank for unit in rivals for rank in guilty[unit]))
    activities = {look[rank].activity for rank in ranks}
    alike = len({look[rank].place for rank in ranks}) == 1
    top, many = max(best.values()), len(rivals)
    why = (
        f"{ranks_of(ranks)} on {many} machines {are(ranks)} outside of any collective: "
        + ", ".join(sorted(str(activity) for activity in activities)),
    )
    named = sorted(guilty, key=lambda unit: (-best[unit], unit))[:NAMED_ALONE]
    found = [
        Hypothesis(
            Kind.MACHINE,
            best[unit] / many * (ALIKE if alike else 1),
            tuple(guilty[unit]),
            (unit,),
            reasons(guilty[unit], look, waits),
        )
        for unit in named
    ]
    running = Activity.COMPUTE in activities  # two faults at once are rare, several ranks at work are not
    together = top * (ALIKE if alike or running else 3.0) / many
    found.append(Hypothesis(Kind.MACHINE, together, ranks, tuple(rivals), why))
    if activities <= _SHARED:
        found.append(Hypothesis(Kind.DEPENDENCY, top * many, ranks, tuple(rivals), why))
    elif alike and activities == {Activity.UNKNOWN}:  # asleep, nobody knows in what: code or a service
        found.append(Hypothesis(Kind.SOFTWARE, top * many / 3, ranks, tuple(rivals), why))
        found.append(Hypothesis(Kind.DEPENDENCY, top * many / 3, ranks, tuple(rivals), why))
    elif alike:
        found.append(Hypothesis(Kind.SOFTWARE, top * many / 2, ranks, tuple(rivals), why))
    else:
        found.append(Hypothesis(Kind.SOFTWARE, top / 4, ranks, tuple(rivals), why))
    return found
