"""Explanations by roots: ranks that wait for nobody while the others wait for them."""

from collections.abc import Mapping
from math import prod

from hangdog_models.diagnosis.activity import Standing, sites
from hangdog_models.diagnosis.counters import BY_COUNTERS, BY_DEVICE
from hangdog_models.diagnosis.hypothesis import Factor, Hypothesis
from hangdog_models.diagnosis.motion import Look, Motion
from hangdog_models.diagnosis.odds import odds_of
from hangdog_models.diagnosis.ras import BY_RAS
from hangdog_models.diagnosis.silence import silent, silent_ranks
from hangdog_models.diagnosis.waits import Waits
from hangdog_models.diagnosis.wording import are, ranks_of, reasons, where
from hangdog_models.ranks import Rank
from hangdog_models.stack import MERELY_FAILED
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Kind

#: What a second look that shows the same stack adds: what lasts is not a moment of a healthy step.
STILL = 2.0
#: What it adds when its lines change at one place although nobody who waits for it moves: busy, perhaps for ever.
MOVING = 1.2
#: A rank that gets on with something else between looks is held up by its work rather than by its machine.
TRAVELLING, TRAVELLING_SLOW = 0.3, 4.0
#: One that is asleep in storage or held up by its device now, and got on with other things before, waits as healthy ranks
#: do: what hangs lets nobody go.
TRAVELLING_ASLEEP = 0.05
#: One that is asleep in storage or held up by its device now, and got on with other things before, waits as healthy ranks
#: do: what hangs lets nobody go.
TRAVELLING_ASLEEP = 0.05
#: In a single look a rank that runs is remarkable when so many wait for it; in a small healthy job one often runs alone.
REMARKABLE = 16
#: What so many waiting ranks add at most to a rank that stands outside and does not go on: each of them would have to be
#: there by chance. Not more, for the ranks of one job are no independent witnesses.
MANY = 4.0
#: What is left of a writer's odds that is seen running.
WRITING = 0.02
#: What is left of a rank that runs in C without the interpreter's lock: reading a value back from the device spins so, and
#: leaves no frame of its own.
SPINNING = 0.05
#: What is left in one look of a rank that runs, or whose device is behind, where others do so, too: a stage at work does.
STAGE = 0.1
#: States that no healthy process stays in, so that one look is enough.
_LASTING = (Activity.STOPPED, Activity.DEAD)
#: Above this share of the roots' best odds, a machine is a candidate beside the best one.
RIVAL = 0.25
#: Up to so many roots, each is asked by itself what it explains.
ASKED_ALONE = 32
#: Of several machines so many are weighed one by one: of fifty equal ones none has a probability worth naming.
NAMED_ALONE = 50
#: What it adds that no rank of a machine answers.
SILENT_MACHINE = 12.0
#: Odds of a rank that alone does not answer NCCL RAS while all its peers do.
SILENT = 40.0
#: A service that fails is missed by some share of the machines: where there are more than so many, one alone is odd.
SERVED = 4
#: Odds of a rank of which only counters are known.
COUNTED = 4.0
#: Odds of code where several ranks of a machine, of which only counters are known, left out the same operation.
ALIKE_BEHIND = 8.0
#: Odds that two machines fail at once, over one alone, where both stand outside; and what each further one leaves of them.
AT_ONCE, AGAIN = 3.0, 0.2
#: What is left of one machine's odds alone when others stand outside that do not merely run: chance hardly does that.
LEFT_OVER, LEFT_OVER_STILL = 0.3, 0.1
#: Activities in which a process waits for itself.
_OWN = {Activity.LOCK, Activity.GIL, Activity.GC}
#: What is left of them when nobody was seen to wait for the rank.
UNAWAITED = 0.2
#: What is left of a machine's odds when other machines have a rank at the very same place: chance does not do that.
ALIKE = 0.3
#: What is left of two faults at once that came to the very same place.
ALIKE_TOGETHER = 0.02
#: Factors that each of several machines has for itself.
_UNLIKELY = (WRITING, SPINNING)
#: Activities of which a service shared by many machines may be the cause.
_SHARED = {
    Activity.STORAGE, Activity.CHECKPOINT, Activity.DATALOADER, Activity.NETWORK, Activity.RENDEZVOUS, Activity.COMPILE,
}  # fmt: skip
#: Those of which one and the same service may be the cause.
_SERVED = _SHARED - {Activity.COMPILE}
#: From so many other machines with a rank at the same such place, it is a phase of the job or a service they share.
ELSEWHERE = 2


def blame_roots(look: Look, waits: Waits, motion: Motion, topology: Topology) -> list[Hypothesis]:
    """Explanations by ranks that wait for nobody while others wait: machines, a shared cause, or merely a slow one."""
    weighed = _weigh(look, waits, motion, topology)
    odds_by = {rank: prod(factor.times for factor in factors) for rank, factors in weighed.items()}
    units: dict[str, list[Rank]] = {}
    for rank, odds in odds_by.items():
        if odds > 0:
            units.setdefault(topology.machine(rank) or f"rank {rank}", []).append(rank)
    if not units:
        return []
    for unit, on in units.items():
        if silent(unit, look, topology):
            whole = (Factor(f"none of the {len(on)} ranks of {unit} answers", SILENT_MACHINE),)
            weighed.update((rank, (*weighed[rank], *whole)) for rank in on)
            odds_by.update((rank, odds_by[rank] * SILENT_MACHINE) for rank in on)
    at_work = [] if motion.known else [rank for rank in weighed if _at_work(look[rank])]
    if len(at_work) > 1:
        moment = Factor(f"{len(at_work)} ranks are at work, seen once", STAGE)
        weighed.update((rank, (*weighed[rank], moment)) for rank in at_work)
        odds_by.update((rank, odds_by[rank] * STAGE) for rank in at_work)
    lead = {unit: max(ranks, key=lambda rank: (odds_by[rank], -rank)) for unit, ranks in units.items()}
    best = {unit: odds_by[rank] for unit, rank in lead.items()}
    top = max(best, key=lambda unit: (best[unit], -lead[unit]))
    guilty = {unit: [r for r in units[unit] if odds_by[r] >= RIVAL * best[unit]] for unit in units}
    rivals = [unit for unit in units if best[unit] >= RIVAL * best[top]]
    if len(rivals) > 1:
        return _several(rivals, guilty, {unit: weighed[lead[unit]] for unit in units}, look, waits, motion, topology)
    found = [
        Hypothesis(
            Kind.MACHINE, weighed[lead[unit]], tuple(guilty[unit]), (unit,), reasons(guilty[unit], look, waits, motion)
        )
        for unit in sorted(units, key=lambda unit: -best[unit])[:NAMED_ALONE]
    ]
    rank, ranks = lead[top], tuple(guilty[top])
    why = reasons(ranks, look, waits, motion)
    other = odds_of(look[rank])
    doing = where(look[rank])
    slow = Factor(f"merely slow, {doing}", other.slow)
    late = Factor(
        "moved or not between the looks",
        0.3 if rank in motion.still else TRAVELLING_SLOW if rank in motion.travelling else 1,
    )
    code = Factor(f"the code stops there, {doing}", other.software)
    if len(ranks) > 1 and look[rank].rule == BY_COUNTERS:
        code = Factor(f"{len(ranks)} ranks of one machine are behind alike, which code does", ALIKE_BEHIND)
    few = Factor("only one machine asks for it", min(1.0, SERVED / max(1, len(topology.machines))) ** 4)
    writes = _writes(look[rank], rank in motion.working)
    writing = [Factor("it is running: a writer that runs is writing", WRITING)] if writes else []
    if rank in motion.travelling and look[rank].activity is Activity.STORAGE:
        few = Factor("it got on with other things between the looks", TRAVELLING_ASLEEP)
    for kind, factors in (
        (Kind.SOFTWARE, (code, *writing)),
        (Kind.DEPENDENCY, (Factor(f"a service does not answer, {doing}", other.dependency), few, *writing)),
        (Kind.SLOW, (slow, late)),
    ):
        found.append(Hypothesis(kind, factors, ranks, (top,), why))
    return found


def _at_work(standing: Standing) -> bool:
    """Its host runs, or its device is behind: in one look no fault, where others do so as well."""
    return standing.activity is Activity.COMPUTE or standing.rule == BY_DEVICE


def _weigh(look: Look, waits: Waits, motion: Motion, topology: Topology) -> dict[Rank, tuple[Factor, ...]]:
    """For each root the factors of its machine's guilt; roots that are alike share them."""
    explained = _explained(look, waits, topology)
    where_of: dict[tuple[object, ...], set[str | None]] = {}
    for standing, ranks in sites(look):
        if not standing.waits and standing.activity in _SHARED:
            on = {topology.machine(rank) for rank in ranks}
            where_of.setdefault(standing.place, set()).update(on)
            where_of.setdefault((standing.activity,), set()).update(on)
    known: dict[tuple[object, ...], tuple[Factor, ...]] = {}
    found: dict[Rank, tuple[Factor, ...]] = {}
    silent = silent_ranks(look, topology)
    failed = sum(_merely_failed(look[rank]) for rank in waits.roots if rank not in silent)
    for rank in waits.roots:
        moved = "still" if rank in motion.still else "moving" if rank in motion.moving else ""
        moved = moved or ("travelling" if rank in motion.travelling else "")
        working = rank in motion.working
        key = (id(look[rank]), moved, explained[rank], working)
        if key not in known:
            factors = _factors(look[rank], moved, explained[rank], waits, motion, working)
            place = look[rank].place if look[rank].frames else (look[rank].activity,)
            others = len(where_of.get(place, ())) - 1
            if failed > 1 and _merely_failed(look[rank]) and rank not in silent:
                factors = (*factors, Factor(f"one of {failed} whose capture failed", 1 / failed))
            if others >= ELSEWHERE:
                factors = (*factors, Factor(f"{others} other machines have a rank at the very same place", ALIKE**2))
            known[key] = factors
        found[rank] = known[key]
    return found


def _merely_failed(standing: Standing) -> bool:
    missing = standing.missing
    return standing.activity is Activity.MISSING and missing is not None and missing.reason in MERELY_FAILED


def _factors(
    standing: Standing, moved: str, explained: float, waits: Waits, motion: Motion, working: bool
) -> tuple[Factor, ...]:
    doing = Factor(where(standing), odds_of(standing).machine)
    if standing.rule == BY_RAS:
        return (Factor("does not answer NCCL RAS while its peers do", SILENT),)
    if standing.rule == BY_COUNTERS:
        doing = Factor("counters tell that it is behind, not what holds it", COUNTED)
    factors = [doing]
    if standing.activity is Activity.COMPUTE and standing.busy and not standing.interpreting and moved in ("", "still"):
        factors.append(Factor("runs without the interpreter's lock, as who waits for a device does", SPINNING))
    if moved:
        held_up = standing.activity is Activity.STORAGE or standing.rule == BY_DEVICE
        travelling = TRAVELLING_ASLEEP if held_up else TRAVELLING
        times = {"still": STILL, "moving": MOVING, "travelling": travelling}[moved]
        factors.append(Factor(f"{moved} in {motion.rounds} looks", times))
    elif standing.activity is Activity.COMPUTE:
        factors.append(Factor("seen once, while so many wait", min(1.0, len(waits.waiting) / REMARKABLE)))
    if _writes(standing, working):
        factors.append(Factor("it is running: a writer that runs is writing", WRITING))
    lasting = moved in ("still", "moving") or standing.activity in _LASTING
    if lasting and len(waits.waiting) > REMARKABLE:
        factors.append(Factor(f"{len(waits.waiting)} ranks wait", min(MANY, len(waits.waiting) / REMARKABLE)))
    if not waits.waiting:
        # Nobody waits: only a state that no healthy process stays in speaks for itself.
        lasting = moved == "still" and standing.activity in (*_SHARED, *_OWN)
        speaks = lasting or standing.activity in (Activity.STOPPED, Activity.DEAD, Activity.STORAGE)
        factors.append(Factor("nobody was seen to wait for it", UNAWAITED if speaks else 0.0))
    factors.append(Factor("share of the waiting ranks it explains", explained))
    return tuple(factors)


def _writes(standing: Standing, working: bool) -> bool:
    return standing.activity in (Activity.CHECKPOINT, Activity.STORAGE) and (working or bool(standing.busy))


def _explained(look: Look, waits: Waits, topology: Topology) -> dict[Rank, float]:
    """For each root, the share of the waiting ranks that its standing there explains, never quite nothing.

    Counted are the ranks that some root explains, those that were captured if any: whoever was not may wait like all
    others, and would pass their waits on. A device may wait for a collective that no frame of its host shows, so a
    waiting rank that is traced to no root speaks against none of them.
    Where roots are many no single one is the cause: then all that do the same are asked together, which also keeps the
    cost linear in the ranks.
    """
    sides: dict[object, list[Rank]] = {}
    for rank in waits.roots:
        alone = (topology.machine(rank) or rank, look[rank].activity)
        sides.setdefault(alone if len(waits.roots) <= ASKED_ALONE else look[rank].activity, []).append(rank)
    loose = waits.reached_from(waits.loose) | waits.loose
    reached = {side: loose | waits.reached_from(ranks) for side, ranks in sides.items()}
    seen = [reached[side] for side, ranks in sides.items() if look[ranks[0]].activity is not Activity.MISSING]
    together = len(frozenset().union(*(seen or reached.values())))
    shares: dict[Rank, float] = {}
    for side, ranks in sides.items():
        share = min(1.0, len(reached[side]) / together) if together else 1.0
        shares.update(dict.fromkeys(ranks, 0.05 + 0.95 * share))
    return shares


def _several(
    rivals: list[str],
    guilty: Mapping[str, list[Rank]],
    weighed: Mapping[str, tuple[Factor, ...]],
    look: Look,
    waits: Waits,
    motion: Motion,
    topology: Topology,
) -> list[Hypothesis]:
    """Roots on several machines: one of them, all of them, or a common cause, which is likelier the more are alike."""
    ranks = tuple(sorted(rank for unit in rivals for rank in guilty[unit]))
    activities = {look[rank].activity for rank in ranks}
    alike = len({look[rank].place for rank in ranks}) == 1
    many, machines = len(rivals), max(len(topology.machines), len(rivals))
    share = many / machines
    odds = {unit: prod(factor.times for factor in weighed[unit]) for unit in guilty}
    first = max(rivals, key=lambda unit: (odds[unit], -guilty[unit][0]))
    top = weighed[first]
    why = (
        f"{ranks_of(ranks)} on {many} machines {are(ranks)} outside of any collective: "
        + ", ".join(sorted(str(activity) for activity in activities)),
    )
    # Two faults at once are rare, several ranks at work are not: only those that stay where they are count as stuck.
    wide = len(waits.waiting) > REMARKABLE and machines > SERVED
    lasting = wide and all(
        rank in motion.still or rank in motion.moving or look[rank].activity in _LASTING for rank in ranks
    )
    running = Activity.COMPUTE in activities and not lasting
    chance = Factor(
        f"{many} of {machines} machines stand outside: only one guilty",
        1 / many if running else (LEFT_OVER_STILL if lasting else LEFT_OVER) / many,
    )
    like = (Factor("others stand at the very same place", ALIKE),) if alike else ()
    found = [
        Hypothesis(
            Kind.MACHINE,
            (*weighed[unit], chance, *like),
            tuple(guilty[unit]),
            (unit,),
            reasons(guilty[unit], look, waits),
        )
        for unit in sorted(guilty, key=lambda unit: (-odds[unit], unit))[:NAMED_ALONE]
    ]
    independent = AT_ONCE * AGAIN ** (many - 2) * (1 - share) ** (1 if lasting else 2) * (ALIKE if running else 1)
    if alike:
        independent *= ALIKE_TOGETHER
    independent *= prod(f.times for unit in rivals if unit != first for f in weighed[unit] if f.times in _UNLIKELY)
    if not motion.known or not wide:
        independent *= ALIKE  # in one look several outside are a moment of a step, in a small job a common one
    found.append(
        Hypothesis(Kind.MACHINE, (*top, Factor(f"{many} faults at once", independent)), ranks, tuple(rivals), why)
    )
    service = Factor(f"a service that {many} of {machines} machines share", many * share)
    code = Factor(f"code that {many} of {machines} machines run", many * share / 2)
    if activities == {Activity.COMPILE}:
        compiling = Factor(f"{many} of {machines} machines compile, which takes its time", many)
        found.append(Hypothesis(Kind.UNDETERMINED, (*top, compiling), because=why))
    elif activities <= _SERVED:
        found.append(Hypothesis(Kind.DEPENDENCY, (*top, service), ranks, tuple(rivals), why))
    elif alike and activities == {Activity.UNKNOWN}:  # asleep, nobody knows in what: code or a service
        found.append(Hypothesis(Kind.SOFTWARE, (*top, code), ranks, tuple(rivals), why))
        found.append(Hypothesis(Kind.DEPENDENCY, (*top, code), ranks, tuple(rivals), why))
    elif activities == {Activity.MISSING}:
        pass  # what is not known of many is not their code
    elif alike:
        found.append(Hypothesis(Kind.SOFTWARE, (*top, code), ranks, tuple(rivals), why))
    else:
        found.append(
            Hypothesis(
                Kind.SOFTWARE,
                (
                    *top,
                    Factor(
                        "code that stops in several places", 0.25 if running else (0.1 if lasting else 0.25) * share
                    ),
                ),
                ranks,
                tuple(rivals),
                why,
            )
        )
    return found
