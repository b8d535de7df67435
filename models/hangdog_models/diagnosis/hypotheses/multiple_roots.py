"""Roots on several machines: one of them is at fault, all of them at once, or one cause is behind all."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from hangdog_models.diagnosis.hypotheses.activity_odds import odds_of
from hangdog_models.diagnosis.hypotheses.blame_factors import (
    DATA_MOVES,
    SHARED,
    SPINS_IN_C,
    WAITING_REMARKABLE,
    compiling,
)
from hangdog_models.diagnosis.hypotheses.hypothesis import SHARPNESS, Factor, Hypothesis
from hangdog_models.diagnosis.hypotheses.reason_text import reasons
from hangdog_models.diagnosis.hypotheses.root_causes import by_cause_of, served
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.hypotheses.single_round import LASTING, at_rest
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.kernel_sleep import OF_ANOTHER_PROCESS
from hangdog_models.diagnosis.observe.motion import Motion
from hangdog_models.diagnosis.rank_words import are, ranks_of
from hangdog_models.diagnosis.stragglers.sample_lengths import replica
from hangdog_models.diagnosis.waits.collective_counters import BY_DEVICE, COUNTED
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.stack import Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Kind, VerdictReason

#: So many of several machines are weighed one by one: of fifty equal ones none has a probability worth naming.
NAMED_ALONE = 50
#: Up to so many machines of doubtful cause are weighed in every combination. With more, no action would differ.
WEIGHED_APART = 3
#: So many ranks that are behind are described one by one.
BEHIND_SHOWN = 4
#: Activities of a process that is not let on by the kernel: the frames it stands in say nothing of why.
KERNEL_HELD = frozenset({Activity.STOPPED, Activity.DEAD})
SERVED_MACHINES = likelihood("served_machines")
TWO_AT_ONCE = likelihood("two_at_once")
EACH_FURTHER_AT_ONCE = likelihood("each_further_at_once")
AT_ONCE_POWER = likelihood("at_once_power")
ONE_OF_SEVERAL = likelihood("one_of_several")
ONE_OF_SEVERAL_STUCK = likelihood("one_of_several_stuck")
SAME_PLACE = likelihood("same_place")
SAME_PLACE_AT_ONCE = likelihood("same_place_at_once")
TWO_SERVICES = likelihood("two_services")
CODE_AT_ONE_PLACE = likelihood("code_at_one_place")
CODE_IN_PLACES = likelihood("code_in_places")
CODE_BY_KERNEL = likelihood("code_by_kernel")
CODE_IN_PLACES_STUCK = likelihood("code_in_places_stuck")
#: Factors that count for each of several machines, not only for the first.
_UNLIKELY = (DATA_MOVES, SPINS_IN_C)
#: Activities that one and the same service may hold up.
_SERVED = SHARED - {Activity.COMPILE}
#: Waits for services that are seldom one and the same.
_APART = {Activity.STORAGE, Activity.NETWORK}


def blame_several(
    rivals: Sequence[str], guilty: Mapping[str, list[Rank]], weighed: Mapping[str, tuple[Factor, ...]], scene: Scene
) -> list[Hypothesis]:
    """Hypotheses where several machines have roots: one of them, all of them, or a common cause.

    The more of them are alike, the likelier is the common cause.
    """
    look, waits, motion, topology = scene.look, scene.waits, scene.motion, scene.topology
    ranks = tuple(sorted(rank for unit in rivals for rank in guilty[unit]))
    activities = {look[rank].activity for rank in ranks}
    # the call site of a rank known by counters alone is unknown
    by_counters = all(look[rank].rule in COUNTED for rank in ranks)
    halted = all(_held_by_kernel(look[rank]) for rank in ranks)
    alike = len({look[rank].place for rank in ranks}) == 1 and not by_counters and not halted
    many, machines = len(rivals), max(_units(topology), len(rivals))
    share = many / machines
    odds = {unit: prod(factor.times for factor in weighed[unit]) for unit in guilty}
    first = max(rivals, key=lambda unit: (odds[unit], -guilty[unit][0]))
    top = weighed[first]
    text = f"{ranks_of(ranks)} on {many} machines {are(ranks)} outside of any collective: "
    text += ", ".join(sorted(str(activity) for activity in activities))
    why: tuple[VerdictReason, ...] = (VerdictReason("several-outside", text),)
    if by_counters:
        each = (reasons(guilty[unit], look, waits)[0] for unit in rivals[:BEHIND_SHOWN])
        text = f"{ranks_of(ranks)} {are(ranks)} behind, and none of them through another one"
        why = (VerdictReason("several-behind", text), *each)
    # Two faults at once are rare, several ranks at work are not: only ranks that stay where they are count as stuck.
    wide = len(waits.waiting) > WAITING_REMARKABLE and machines > SERVED_MACHINES
    stays = all(_stays(rank, look[rank], motion) for rank in ranks)
    lasting = wide and (stays or (not motion.known and at_rest([look[rank] for rank in ranks])))
    running = Activity.COMPUTE in activities and not lasting
    chance = Factor(
        f"{many} of {machines} machines stand outside: only one guilty",
        1 / many if running else (ONE_OF_SEVERAL_STUCK if lasting else ONE_OF_SEVERAL) / many,
    )
    like = (Factor("others stand at the very same place", SAME_PLACE),) if alike else ()
    found = [
        cause
        for unit in sorted(guilty, key=lambda unit: (-odds[unit], unit))[:NAMED_ALONE]
        for cause in by_cause_of(
            Hypothesis(
                Kind.MACHINE,
                (*weighed[unit], chance, *like),
                tuple(guilty[unit]),
                (unit,),
                reasons(guilty[unit], look, waits),
            ),
            scene,
        )
    ]
    independent = TWO_AT_ONCE * EACH_FURTHER_AT_ONCE ** (many - 2) * (1 - share) ** (1 if lasting else AT_ONCE_POWER)
    independent *= SAME_PLACE if running else 1
    mates = all(look[rank].rule == BY_DEVICE for rank in ranks) and replica(ranks[0], topology).issuperset(ranks)
    # Compiling takes minutes on sound machines, so it is no independent fault. Devices that share samples do not fail
    # at once.
    if alike or mates or any(compiling(look[rank]) for rank in ranks):
        independent *= SAME_PLACE_AT_ONCE
    independent *= prod(f.times for unit in rivals if unit != first for f in weighed[unit] if f.times in _UNLIKELY)
    if not (motion.known or lasting) or not wide:
        independent *= SAME_PLACE  # one round often shows several roots, more so in a small job
    at_once = Hypothesis(Kind.MACHINE, (*top, Factor(f"{many} faults at once", independent)), ranks, tuple(rivals), why)
    found += _each_by_its_causes(at_once, guilty, weighed, scene) if many <= NAMED_ALONE else [at_once]
    found += [
        each
        for kind, factor in _one_cause([look[rank] for rank in ranks], many, machines, alike, running, lasting, mates)
        for each in _common(Hypothesis(kind, (*top, factor), ranks, tuple(rivals), why), scene)
    ]
    return found


def _held_by_kernel(state: RankState) -> bool:
    """Whether the kernel does not let it on: it is stopped or dead, or asleep in a driver, where no signal reaches it."""
    in_driver = state.missing is not None and state.missing.reason is Reason.UNINTERRUPTIBLE and not state.frames
    return state.activity in KERNEL_HELD or (in_driver and state.activity is Activity.DEVICE_SYNC)


def _each_by_its_causes(
    at_once: Hypothesis, guilty: Mapping[str, list[Rank]], weighed: Mapping[str, tuple[Factor, ...]], scene: Scene
) -> list[Hypothesis]:
    """Several machines at once, each with its own cause: a machine that would not be evicted alone is not evicted
    beside another.

    If more than `WEIGHED_APART` are in doubt, either all are faults of machines or none is.
    """
    share = {unit: _machines_share(unit, guilty[unit], weighed[unit], scene) for unit in at_once.units}
    doubtful = [unit for unit in at_once.units if share[unit] < 1.0]
    if not doubtful:
        return [at_once]
    either = [tuple(doubtful), ()]
    if len(doubtful) <= WEIGHED_APART:
        either = [some for count in range(len(doubtful) + 1) for some in combinations(doubtful, count)]
    found = []
    for broken in either:
        part = prod(share[unit] if unit in broken else 1 - share[unit] for unit in doubtful)
        if len(doubtful) > WEIGHED_APART and not broken:
            part = 1 - prod(share[unit] for unit in doubtful)
        units = tuple(unit for unit in at_once.units if unit in broken or share[unit] == 1.0)
        if units:
            ranks = tuple(sorted(rank for unit in units for rank in guilty[unit]))
            found.append(replace(at_once, ranks=ranks, units=units, shares=(part,)))
        else:
            found.append(replace(at_once, kind=Kind.SOFTWARE, shares=(part,)))
    return found


def _machines_share(unit: str, ranks: Sequence[Rank], factors: tuple[Factor, ...], scene: Scene) -> float:
    """The probability that a root of this machine is the machine's own fault, if it were the only one."""
    alone = Hypothesis(Kind.MACHINE, factors, tuple(ranks), (unit,), reasons(list(ranks), scene.look, scene.waits))
    causes = by_cause_of(alone, scene)
    odds = odds_of(scene.look[ranks[0]])
    if causes == [alone] and odds.software > odds.machine:  # such as a process that ended: code does that, first of all
        code: float = (odds.software / prod(factor.times for factor in factors)) ** SHARPNESS
        return 1 / (1 + code)
    return sum(prod(cause.shares) for cause in causes if cause.kind is Kind.MACHINE)


def _common(found: Hypothesis, scene: Scene) -> list[Hypothesis]:
    """What is behind all of them.

    A service gives two hypotheses: it does not answer, or it does and a phase of the job takes its time.
    """
    if found.kind is Kind.UNDETERMINED:
        return [replace(found, ranks=(), units=())]
    return served(found, scene) if found.kind is Kind.DEPENDENCY else [found]


def _units(topology: Topology) -> int:
    """The number of machines there may be: a rank whose machine is unknown counts as one of its own."""
    placed = sum(len(ranks) for ranks in topology.machines.values())
    return len(topology.machines) + max(0, topology.world_size - placed)


def _stays(rank: Rank, state: RankState, motion: Motion) -> bool:
    """Whether it stays where it is.

    A rank whose other captures failed counts as staying: the other ranks were unchanged.
    """
    if rank in motion.still or rank in motion.moving or state.activity in LASTING:
        return True
    return motion.known and rank not in motion.travelling and bool(state.frames)


def _one_cause(
    states: Sequence[RankState], many: int, machines: int, alike: bool, running: bool, lasting: bool, mates: bool
) -> list[tuple[Kind, Factor]]:
    """What may be behind all of them, by their activities: a service, the code, or work that takes its time."""
    activities = {state.activity for state in states}
    share = many / machines
    if mates or (len(states) > many and all(state.rule == BY_DEVICE for state in states)):
        behind = Factor(f"{len(states)} devices on {many} machines are behind alike: work that takes its time", many)
        return [(Kind.UNDETERMINED, behind)]
    code = Factor(f"code that {many} of {machines} machines run", many * share * CODE_AT_ONE_PLACE)
    if all(map(_held_by_kernel, states)):
        return [(Kind.SOFTWARE, Factor("code that stops processes, or has the kernel hold them", CODE_BY_KERNEL))]
    if activities == {Activity.COMPILE}:
        return [(Kind.UNDETERMINED, Factor(f"{many} of {machines} machines compile, which takes its time", many))]
    if activities <= _SERVED:
        service = many * share * (TWO_SERVICES if activities >= _APART else 1)
        return [(Kind.DEPENDENCY, Factor(f"a service that {many} of {machines} machines share", service))]
    if activities == {Activity.MISSING}:
        return []  # not captured on many machines: that does not point at their code
    if alike and all(
        state.awaits in OF_ANOTHER_PROCESS for state in states
    ):  # another process on each of them: what these have in common
        asked = Factor(f"a service that {many} of {machines} machines share", many * share)
        return [(Kind.SOFTWARE, code), (Kind.DEPENDENCY, asked)]
    if alike and activities == {Activity.UNKNOWN}:  # asleep in an unknown call: code or a service
        return [(Kind.SOFTWARE, code), (Kind.DEPENDENCY, code)]
    if alike and running:
        return [(Kind.UNDETERMINED, Factor(f"{many} machines are at work at one place, which is no fault", many))]
    if alike:
        return [(Kind.SOFTWARE, code)]
    likely = CODE_IN_PLACES if running else (CODE_IN_PLACES_STUCK if lasting else CODE_IN_PLACES) * share
    return [(Kind.SOFTWARE, Factor("code that stops in several places", likely))]
