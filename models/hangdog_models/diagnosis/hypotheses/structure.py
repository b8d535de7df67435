"""Hypotheses by structure alone: if frames name no rank, the pattern of call sites shows which group is at fault."""

from hangdog_models.diagnosis.clustering import relations
from hangdog_models.diagnosis.clustering.relations import Candidate
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.outliers import PIPELINE, TENSOR, Apart
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.hypotheses.stuck_groups import GROUP_APART, GROUP_APART_BY_CODE
from hangdog_models.diagnosis.observe.motion import is_idle
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, VerdictReason

MESSAGE_LOST = likelihood("message_lost")
MESSAGE_LOST_BY_CODE = likelihood("message_lost_by_code")
LED_APART = likelihood("led_apart")
LED_APART_BY_CODE = likelihood("led_apart_by_code")
FIRST_BY_RELATION = likelihood("first_by_relation")
ALONE_ELSEWHERE = likelihood("alone_elsewhere")
#: What distinguishes code from hardware.
TELLS = VerdictReason(
    "dumps-would-tell",
    "code whose calls differ between these ranks shows the same stacks: flight recorder dumps tell which it is",
)

COLLECT_COUNTERS = VerdictReason(
    "collect-counters", "collect next: flight recorder dumps or NCCL RAS, which count who entered which collective"
)


def explain(scene: Scene) -> list[Hypothesis]:
    """The group that the pattern of call sites points at, once as hardware and once as code.

    Asked only where no counter shows more.
    """
    apart, waits, topology = scene.outliers, scene.waits, scene.topology
    if any(hold.counted for hold in waits.holds) or len(topology.machines) < 2:
        return []
    if apart.lost:
        return _lost(apart.lost, bool(apart.message))
    if apart.group:
        return _held_up(apart, topology)
    if waits.roots or not scene.motion.known:
        return []
    found = relations.explain(
        {rank: number for number, cluster in enumerate(scene.clusters) for rank in cluster.ranks}, topology
    )
    best = found.candidates[0] if found.candidates else None
    if best is None or (len(best.ranks) == 1 and not best.relations):
        return [_elsewhere(best.ranks[0], scene)] if best is not None and _stood(best.ranks[0], scene) else []
    return [_related(best, topology)]


def _lost(ranks: tuple[Rank, ...], pair: bool) -> list[Hypothesis]:
    text = (
        f"{ranks_of(ranks)} are the two ends of one message, without their peers, and it does not arrive"
        if pair
        else f"{ranks_of(ranks)} are one pipeline that waits for messages of its own, and no other one does as a whole"
    )
    hold = GroupWait("pp", ranks, (), "a message")
    reason = VerdictReason("message-lost" if pair else "pipeline-stuck", text)
    return _both(hold, reason, MESSAGE_LOST, MESSAGE_LOST_BY_CODE)


def _held_up(apart: Apart, topology: Topology) -> list[Hypothesis]:
    """The group that holds all outliers, or those of them that are in messages to each other."""
    ranks = tuple(sorted({rank for pair in apart.pairs for rank in pair})) or apart.group
    text = (
        f"{ranks_of(ranks)} stand apart from their like, in messages to each other that do not arrive"
        if apart.pairs
        else f"{ranks_of(apart.ranks)} stand apart from their like, and all of them are in the {apart.dim} group of "
        f"{ranks_of(ranks)}"
    )
    hardware, code = (LED_APART, LED_APART_BY_CODE) if apart.led else (GROUP_APART, GROUP_APART_BY_CODE)
    if apart.dim == PIPELINE and not apart.pairs and TENSOR in topology.groups:
        # collectives involve whole tensor groups, so only messages can separate them like this
        hardware, code = MESSAGE_LOST, MESSAGE_LOST_BY_CODE
    reason = VerdictReason("apart-in-messages" if apart.pairs else "apart-in-group", text)
    return _both(GroupWait(apart.dim, ranks, (), "a group apart"), reason, hardware, code)


def _both(hold: GroupWait, reason: VerdictReason, hardware: float, code: float) -> list[Hypothesis]:
    because = (reason, TELLS)
    group = Hypothesis(Kind.GROUP, odds(reason.text, hardware), hold.inside, (), because, hold)
    return [group, Hypothesis(Kind.SOFTWARE, odds(reason.text, code), reasons=because)]


def _stood(rank: Rank, scene: Scene) -> bool:
    """Whether it stands for longer than two looks may both meet by chance, and none is idle, which is no wait."""
    if rank not in scene.motion.still or any(map(is_idle, scene.look.values())):
        return False
    return scene.motion.lasting or scene.stalled_s is not None


def _elsewhere(rank: Rank, scene: Scene) -> Hypothesis:
    """One rank waits at a place of its own, and all others at others: it runs other code, as 18 of 19 simulated ones did."""
    text = f"{ranks_of((rank,))} waits at a place of its own, and stands in no relation to where the others wait"
    unit = scene.topology.machine(rank) or f"rank {rank}"
    because = (VerdictReason("alone-elsewhere", text), TELLS, COLLECT_COUNTERS)
    return Hypothesis(Kind.SOFTWARE, odds(text, ALONE_ELSEWHERE), (rank,), (unit,), because)


def _related(best: Candidate, topology: Topology) -> Hypothesis:
    factors = odds("its relations explain who stands where", FIRST_BY_RELATION)
    machines, because = topology.machines_of(best.ranks), (VerdictReason("relations-explain", best.reason),)
    if len(machines) == 1:
        return Hypothesis(Kind.MACHINE, factors, best.ranks, machines, because)
    hold = GroupWait(best.kind, best.ranks, (), best.name)
    return Hypothesis(Kind.GROUP, factors, best.ranks, (), because, hold)
