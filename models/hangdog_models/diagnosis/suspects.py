"""Hypotheses that explain the waits, each with odds from the evidence, and the probabilities that follow from them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.activity import Standing
from hangdog_models.diagnosis.motion import Look, Motion
from hangdog_models.diagnosis.waits import Hold, Waits
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.rules.ruleset import Wait
from hangdog_models.stack import Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Kind


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One explanation: `odds` relative to the others; for a machine or software one, the ranks it rests on.

    `units` are the machines it blames; a rank whose machine is unknown is a unit of its own, written `rank 3`.
    """

    kind: Kind
    odds: float
    ranks: tuple[Rank, ...] = ()
    units: tuple[str, ...] = ()
    because: tuple[str, ...] = ()
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class Odds:
    """How a rank that waits for nobody came to stand where it stands: a fault of its machine, of the code, of a service."""

    machine: float
    software: float = 1.0
    dependency: float = 0.3
    slow: float = 0.3


#: Relative odds by what the awaited rank is doing. The scale is set by the demand that one root, seen standing still twice
#: and explaining every wait, reaches 0.95, and one seen once does not. They order the causes of the public incidents
#: (43 of them); they are not calibrated yet, and the README says so.
ODDS: Mapping[Activity, Odds] = {
    Activity.STOPPED: Odds(80),
    Activity.DEAD: Odds(12, software=14),
    Activity.STORAGE: Odds(24, software=1, dependency=4),
    Activity.CHECKPOINT: Odds(24, dependency=1),
    Activity.DATALOADER: Odds(24, software=1, dependency=1),
    Activity.LOCK: Odds(24, software=1.2),
    Activity.GIL: Odds(24, software=1.2),
    Activity.GC: Odds(24, software=1.2),
    Activity.NETWORK: Odds(6, software=1, dependency=8),
    Activity.COMPILE: Odds(2, software=1, slow=10),
    Activity.LAUNCH: Odds(8, software=6),
    Activity.UNKNOWN: Odds(24, software=1.2, dependency=0.5, slow=0.7),
    Activity.COMPUTE: Odds(12, software=1.5, slow=3),
    Activity.IDLE: Odds(1),
    Activity.MISSING: Odds(2, software=1),
}
#: A capture that fails for reasons of the machine says more than one that was never made; one refused says nothing.
OF_FAILED_CAPTURE: Mapping[Reason, Odds] = {
    Reason.NO_AGENT: Odds(12),
    Reason.TIMED_OUT: Odds(6),
    Reason.RESTARTED: Odds(3, software=4),
    Reason.NOT_PERMITTED: Odds(0.5),
    Reason.TOOL_MISSING: Odds(0.5),
}
#: What a second look that shows the same stack adds: what lasts is not a moment of a healthy step.
STILL = 2.0
#: What is left when the rank moved between looks although all who wait for it did not: busy, perhaps for ever.
MOVING = 0.8
#: In a single look a rank that runs is remarkable when so many wait for it; in a small healthy job one often runs alone.
REMARKABLE = 16
#: Odds that the culprit is a rank nobody captured: when all are captured, and what is added when none is.
UNSEEN, UNSEEN_ALL = 0.2, 5.0
#: Above this share of the roots' best odds, a machine is a candidate beside the best one.
RIVAL = 0.25
#: Up to so many roots, each is asked by itself what it explains.
ASKED_ALONE = 32
#: Of several machines so many are weighed one by one: of fifty equal ones none has a probability worth naming.
NAMED_ALONE = 50
#: A group that has joined and does not complete, while some rank stands outside of all collectives, is rarely the fault.
EXPLAINED = 0.1
#: Activities of which a service shared by many machines may be the cause.
_SHARED = {Activity.STORAGE, Activity.CHECKPOINT, Activity.DATALOADER, Activity.NETWORK, Activity.RENDEZVOUS}


def blame_roots(look: Look, waits: Waits, motion: Motion, topology: Topology) -> list[Hypothesis]:
    """Explanations by ranks that wait for nobody while others wait: machines, a shared cause, or merely a slow one."""
    explained = _explained(look, waits)
    scored = {rank: _score(look[rank], waits, motion) * explained[rank] for rank in waits.roots}
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
    lead = look[max(scored, key=lambda rank: (scored[rank], -rank))]
    if len(rivals) > 1:
        return _several(rivals, guilty, best, look, waits)
    found = [
        Hypothesis(Kind.MACHINE, odds, tuple(guilty[unit]), (unit,), _reasons(guilty[unit], look, waits, motion))
        for unit, odds in best.items()
    ]
    ranks = tuple(guilty[rivals[0]])
    why = _reasons(ranks, look, waits, motion)
    odds = _odds(lead)
    found.append(Hypothesis(Kind.SOFTWARE, odds.software, ranks, tuple(rivals), why))
    found.append(Hypothesis(Kind.DEPENDENCY, odds.dependency, ranks, tuple(rivals), why))
    slow = odds.slow * (0.3 if lead.rank in motion.still else 1)
    found.append(Hypothesis(Kind.SLOW, slow, ranks, tuple(rivals), why))
    return found


def blame_code(look: Look, waits: Waits, motion: Motion, topology: Topology) -> list[Hypothesis]:
    """When all wait and nobody is waited for that does not wait: ranks in different operations wait for each other.

    The rank named is the one inside an operation whose other members are elsewhere, fewest first; two equal sides say
    nothing about the direction. One look of stacks may have caught a healthy step, so counters or a second look decide.
    """
    joined = {rank for hold in waits.holds if hold.joined and not hold.inferred for rank in hold.inside}
    sides: dict[tuple[object, ...], list[Rank]] = {}
    for rank in waits.waiting:
        standing = look[rank]
        if standing.wait in (Wait.GROUP, Wait.PEER) and rank not in joined:
            sides.setdefault(standing.place, []).append(rank)
    awaiting = [hold for hold in waits.holds if not hold.joined and hold.inside]
    if _outside(look, waits) or not sides or not awaiting or len({look[rank].place for rank in waits.waiting}) < 2:
        return []
    order = sorted(sides.values(), key=lambda ranks: (len(ranks), ranks[0]))
    if joined and len(order) == 1:
        return []  # the others wait for a group that is stuck inside: nothing is out of order
    odd = order[0]
    alone = len(order) == 1 or len(order[1]) > len(odd)
    minority = len(odd) * 2 < len(waits.waiting)
    confirmed = _crossed(set(odd), waits) or (motion.known and set(odd) <= motion.still)
    odds = 12.0 if confirmed else 1.5 if alone and minority and len(order) > 1 else 0.1
    if joined:
        odds *= EXPLAINED
    if len(order) == 1:  # the other side waits in something the frames do not name: direction and cause stay open
        odds = min(odds, 1.5 if confirmed else 0.4)
    other = order[1:] or [[rank for rank in waits.waiting if rank not in odd]]
    sides_of = f"{_ranks(odd)} {_is(odd)} in {_where(look[odd[0]])}, {_ranks(other[-1])} {_is(other[-1])} in {_where(look[other[-1][0]])}"
    because = (
        f"{sides_of}: each side waits for the other",
        "no rank stands outside of a collective: nothing that a machine does explains this",
    )
    if not alone or not minority:
        return [Hypothesis(Kind.SOFTWARE, odds, (), (), because)]
    units = tuple(topology.machine(rank) or f"rank {rank}" for rank in odd)
    return [Hypothesis(Kind.SOFTWARE, odds, tuple(odd), tuple(dict.fromkeys(units)), because)]


def _crossed(odd: set[Rank], waits: Waits) -> bool:
    """Counters show it: the odd ranks wait in one process group for ranks that wait for them in another.

    A single group says less: counters read at different moments of a healthy job differ, too.
    """
    counted = [hold for hold in waits.holds if hold.counted and hold.awaited]
    ahead = [hold for hold in counted if odd <= set(hold.inside)]
    behind = [hold for hold in counted if odd <= set(hold.awaited)]
    return any(set(a.awaited) & set(b.inside) for a in ahead for b in behind)


def blame_groups(look: Look, waits: Waits, motion: Motion) -> list[Hypothesis]:
    """Groups all of whose members joined an operation that does not complete: a link, a switch or a device inside."""
    outside = _outside(look, waits)
    stuck = [h for h in waits.holds if h.joined and len(h.inside) > 1 and not (h.inferred and outside)]
    loose = waits.loose
    found = []
    for hold in stuck:
        confirmed = all(rank in motion.still for rank in hold.inside)
        because = (
            f"all {len(hold.inside)} ranks of {hold.dim} group {format_ranks(hold.inside)} are in {hold.what}"
            + (" and none has moved" if confirmed else ""),
        )
        explained = len(waits.reached_from({*hold.inside, *loose}) | loose | set(hold.inside)) / len(waits.waiting)
        odds = (6.0 if confirmed else 1.0) * explained / len(stuck) * (EXPLAINED if outside else 1)
        found.append(Hypothesis(Kind.GROUP, odds, hold.inside, (), because, hold))
    return found


def unseen(captured: int, expected: int) -> Hypothesis:
    """The explanation that remains: the culprit is not in the evidence."""
    share = 1 - captured / expected if expected else 1.0
    because = (f"{expected - captured} of {expected} ranks were not captured",) if captured < expected else ()
    return Hypothesis(Kind.UNDETERMINED, UNSEEN + UNSEEN_ALL * share, because=because)


def _outside(look: Look, waits: Waits) -> bool:
    """Some captured rank waits for nobody: then the others need no fault of their own to be where they are."""
    return any(look[rank].activity is not Activity.MISSING for rank in waits.roots)


def _odds(standing: Standing) -> Odds:
    if standing.remote_storage:
        return Odds(4, software=2, dependency=40)
    if standing.activity is Activity.MISSING and standing.missing:
        return OF_FAILED_CAPTURE.get(standing.missing.reason, ODDS[Activity.MISSING])
    return ODDS.get(standing.activity, ODDS[Activity.UNKNOWN])


def _score(standing: Standing, waits: Waits, motion: Motion) -> float:
    odds = _odds(standing).machine
    if standing.rule == "flight recorder":
        odds = 4.0  # counters tell who is behind, not what holds it
    if standing.rank in motion.still:
        odds *= STILL
    elif standing.rank in motion.moving:
        odds *= MOVING
    elif standing.activity is Activity.COMPUTE:
        odds *= min(1.0, len(waits.waiting) / REMARKABLE)
    if not waits.waiting:
        # Nobody waits: only a state that no healthy process stays in speaks for itself.
        return odds if standing.activity in (Activity.STOPPED, Activity.DEAD, Activity.STORAGE) else 0.0
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
        f"{_ranks(ranks)} on {many} machines {_is(ranks)} outside of any collective: "
        + ", ".join(sorted(str(activity) for activity in activities)),
    )
    named = sorted(guilty, key=lambda unit: (-best[unit], unit))[:NAMED_ALONE]
    found = [
        Hypothesis(Kind.MACHINE, best[unit] / many, tuple(guilty[unit]), (unit,), _reasons(guilty[unit], look, waits))
        for unit in named
    ]
    together = top * (0.3 if alike else 3.0) / many
    found.append(Hypothesis(Kind.MACHINE, together, ranks, tuple(rivals), why))
    if activities <= _SHARED:
        found.append(Hypothesis(Kind.DEPENDENCY, top * many, ranks, tuple(rivals), why))
    elif alike:
        found.append(Hypothesis(Kind.SOFTWARE, top * many / 2, ranks, tuple(rivals), why))
    else:
        found.append(Hypothesis(Kind.SOFTWARE, top / 4, ranks, tuple(rivals), why))
    return found


def _reasons(ranks: Iterable[Rank], look: Look, waits: Waits, motion: Motion | None = None) -> tuple[str, ...]:
    ranks = list(ranks)
    standing = look[ranks[0]]
    text = f"{_ranks(ranks)} {_is(ranks)} {_where(standing)}, outside of any collective"
    if motion is not None and motion.known and standing.frames:
        still = all(rank in motion.still for rank in ranks)
        text += f", unchanged in {motion.rounds} looks" if still else f", at different lines in {motion.rounds} looks"
    reasons = [text]
    if standing.missing:
        reasons.append(f"{_ranks(ranks)}: {standing.missing}")
    reached = waits.reached_from(ranks)
    if reached:
        dims = sorted({str(hold.dim) for rank in ranks for hold in waits.holds_for(rank)})
        reasons.append(f"{_ranks(sorted(reached))} wait for it through {', '.join(dims)}, directly or through others")
    loose = sorted(waits.loose - reached - set(ranks))
    if loose:
        where = sorted({_where(look[rank]) for rank in loose})
        behind = sorted(waits.reached_from(loose) - reached - set(loose))
        text = f"{_ranks(loose)} {_is(loose)} in {', '.join(where[:3])}, whose frames do not name whom they wait for"
        text += f", and {_ranks(behind)} wait for those" if behind else ""
        everybody = len(reached) + len(loose) + len(behind) >= len(waits.waiting)
        reasons.append(text + ("; no other rank stands outside" if everybody else ""))
    return tuple(reasons)


def _where(standing: Standing) -> str:
    doing = {
        Activity.UNKNOWN: "asleep",
        Activity.COMPUTE: "computing",
        Activity.DATALOADER: "waiting for its data loader",
        Activity.STORAGE: "waiting for storage",
        Activity.CHECKPOINT: "writing a checkpoint",
        Activity.LOCK: "waiting for a lock",
        Activity.GIL: "asleep holding the interpreter lock",
        Activity.GC: "collecting garbage",
        Activity.COMPILE: "compiling",
        Activity.MISSING: "not captured",
    }.get(standing.activity, str(standing.activity).replace("_", " "))
    if standing.waits:
        doing = standing.operation or doing
        if standing.dim:
            doing += f" ({standing.dim})"
    return f"{doing} in {standing.label}" if standing.label else doing


def _ranks(ranks: Iterable[Rank]) -> str:
    ranks = list(ranks)
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def _is(ranks: Iterable[Rank]) -> str:
    return "is" if len(list(ranks)) == 1 else "are"
