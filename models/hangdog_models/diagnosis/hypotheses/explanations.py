"""All hypotheses that explain what was seen, each with odds; their shares of the sum are the probabilities."""

from collections.abc import Callable, Sequence

from hangdog_models.counts import counted
from hangdog_models.diagnosis.hypotheses import (
    contradiction,
    disagreement,
    mismatch,
    missing_dumps,
    roots,
    structure,
    stuck_groups,
)
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.hypotheses.stuck_groups import NOT_INSIDE, proven
from hangdog_models.diagnosis.observe.activity import RankState, sites
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Kind

#: Odds that the culprit is a rank nobody captured: when all are captured, and what is added when none is.
UNSEEN, UNSEEN_ALL = 1.0, 5.0
#: Odds that a single look caught a healthy step: as good as those of a weak explanation, no match for a strong one; but
#: where more ranks run than wait, the job is at work, and that beats them all.
MOMENT, AT_WORK = 1.0, 50.0
#: A job that is stuck comes to rest in a few places, with a pipeline in more; one at work is spread over as many as its
#: step has. Beyond, the odds grow by this power of how many more (97 of 100 stuck jobs kept to these in a single look).
PLACES, PLACES_IN_STAGES, SPREAD = 3, 6, 4
#: Odds that two looks which show no progress caught a slow step of a job that made progress in the look before them: above
#: those of a rank seen standing still twice, below those of one that is stopped or dead. A hang that is looked into began
#: long ago; one that begins just between two looks is rare. Each further look that shows none makes a slow step rarer.
SLOW_STEP = 60.0
#: Where few wait, such a moment is common: the odds are so many times as good with up to so many waiting.
COMMON, FEW = 4.0, 16


def explain_unseen(scene: Scene) -> list[Hypothesis]:
    """Always: the culprit may not be in the evidence."""
    return [unseen(scene.captured, scene.topology.world_size, inside=proven(scene))]


def explain_moment(scene: Scene) -> list[Hypothesis]:
    """Where nothing shows what moves: one look may have caught a healthy step."""
    return [] if scene.motion.known else [moment(scene.look, scene.waits, scene.topology)]


def explain_slow_step(scene: Scene) -> list[Hypothesis]:
    """Where the job moved on in the look before: it may be in a slow step."""
    return [slow_step(scene.motion)] if scene.motion.moved_on and scene.motion.known else []


def unseen(captured: int, expected: int, *, inside: bool = False) -> Hypothesis:
    """The explanation that remains: the culprit is not in the evidence. `inside`: a group that was seen whole is stuck."""
    share = max(0.0, 1 - captured / expected) if expected else 1.0  # RAS may count more than belong to the job
    because = (f"{expected - captured} of {expected} ranks were not captured",) if captured < expected else ()
    factors = odds("the culprit left no evidence", UNSEEN + UNSEEN_ALL * share)
    if inside:
        factors = (*factors, Factor("a group that was seen whole has joined and does not complete", NOT_INSIDE))
    return Hypothesis(Kind.UNDETERMINED, factors, reasons=because)


def moment(look: Look, waits: Waits, topology: Topology) -> Hypothesis:
    """The other explanation that remains after a single look: nothing is stuck."""
    if not look or not any(state.frames for state in look.values()):
        return Hypothesis(Kind.UNDETERMINED, odds("nothing is stuck, one look caught a moment", MOMENT))
    running = sum(look[rank].activity is Activity.COMPUTE for rank in waits.roots)
    at_work = running > len(waits.waiting)
    because = ("one look cannot show that nothing moves",)
    if at_work:
        return Hypothesis(Kind.UNDETERMINED, odds("more ranks run than wait", AT_WORK), reasons=because)
    few = max(MOMENT, COMMON * min(1.0, FEW / max(1, len(waits.waiting))))
    places = len({(place.label, place.signature.innermost if place.signature else "") for place, _ in _seen(look)})
    usual = PLACES_IN_STAGES if "pp" in topology.groups else PLACES
    factors = (
        Factor("nothing is stuck, one look caught a moment", few),
        Factor(f"the ranks stand in {counted(places, 'place')}", max(1.0, places / usual) ** SPREAD),
    )
    return Hypothesis(Kind.UNDETERMINED, factors, reasons=because)


def slow_step(motion: Motion) -> Hypothesis:
    """What a job that moved on while it was being looked at may be doing since: nothing worse than a slow step."""
    because = f"the job moved on before the last {motion.rounds} looks: look again a few seconds later"
    words = f"a slow step: the job moved on before the last {motion.rounds} looks"
    return Hypothesis(Kind.UNDETERMINED, odds(words, SLOW_STEP / (motion.rounds - 1) ** 2), reasons=(because,))


def _seen(look: Look) -> list[tuple[RankState, list[Rank]]]:
    return [(state, ranks) for state, ranks in sites(look) if state.frames]


#: Every explanation, in order: each is asked for its hypotheses, and none knows of the others.
EXPLANATIONS: tuple[Callable[[Scene], Sequence[Hypothesis]], ...] = (
    roots.explain,
    mismatch.explain,
    stuck_groups.explain,
    explain_moment,
    explain_slow_step,
    disagreement.explain,
    missing_dumps.explain,
    structure.explain,
    contradiction.explain,
    explain_unseen,
)


def explain(scene: Scene) -> tuple[Hypothesis, ...]:
    """All hypotheses of a scene, each with the odds that stacks and counters give it."""
    return tuple(hypothesis for explanation in EXPLANATIONS for hypothesis in explanation(scene))
