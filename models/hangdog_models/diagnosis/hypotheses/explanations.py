"""All hypotheses that explain what was seen, each with odds; their shares of the sum are the probabilities."""

from hangdog_models.counts import counted
from hangdog_models.diagnosis.hypotheses.blame_factors import merely_failed
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.mismatch import blame_code, blame_odd
from hangdog_models.diagnosis.hypotheses.roots import blame_roots
from hangdog_models.diagnosis.hypotheses.stuck_groups import blame_groups, proven
from hangdog_models.diagnosis.observe.activity import RankState, sites
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Kind

#: Odds that the culprit is a rank nobody captured: when all are captured, and what is added when none is.
UNSEEN, UNSEEN_ALL = 1.0, 5.0
#: What is left of a culprit of whom nothing is known where counters show a group that has joined and whose devices all have
#: begun: NCCL's kernels then need nobody but each other, so who is not in it does not hold it up.
NOT_INSIDE = 0.1
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


def find(look: Look, waits: Waits, motion: Motion, topology: Topology, *, lost: bool = False) -> tuple[Hypothesis, ...]:
    """Every explanation that the stacks and counters give, and that one look may have caught a healthy step.

    Where a message is `lost`, whose ends wait for nobody else, no two sides wait for each other.
    """
    roots = blame_roots(look, waits, motion, topology)
    if proven(look, waits):
        unknown = Factor("a group it is not in has joined and does not complete", NOT_INSIDE)
        roots = [one.moved(unknown) if _unknown(one, look) else one for one in roots]
    return (
        *roots,
        *([] if lost else blame_code(look, waits, motion, topology)),
        *blame_odd(look, waits, topology),
        *blame_groups(look, waits, motion, topology),
        *([] if motion.known else [moment(look, waits, topology)]),
        *([slow_step(motion)] if motion.moved_on and motion.known else []),
    )


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


def _unknown(hypothesis: Hypothesis, look: Look) -> bool:
    """Whether it rests on ranks alone of which nothing is known but that others wait for them."""
    return bool(hypothesis.ranks) and all(merely_failed(look[rank]) for rank in hypothesis.ranks)


def _seen(look: Look) -> list[tuple[RankState, list[Rank]]]:
    return [(state, ranks) for state, ranks in sites(look) if state.frames]
