"""Plants long phases in a job: healthy ones that end, and duties of one rank that never do."""

from collections.abc import Callable, Collection
from math import exp, inf, log
from random import Random

from accuracy.simulator.faults import living
from accuracy.simulator.faults.scene import Duty, Scene
from accuracy.simulator.phases.phase import PHASE, Part, Phase, Who
from accuracy.simulator.phases.timeline import Moment, Timeline
from accuracy.simulator.program import Code, Mode, Op, Place
from hangdog_models.stack import Frame

#: Looks at a job that something was wondered about, and the seconds between them: as an agent looks (docs/agent.md).
LOOKS, GAP_S = 3, 5.0
#: So long a job has stood, at least, when its collector states that nothing moves.
STATED_FROM_S = 10.0
#: How often somebody states it.
STATED = 0.5
#: Steps of training before a phase, and after one that ends.
TRAINED, GOES_ON = 2, 3
#: Outermost frames of a trainer that are above all that it does.
TRAINERS_OWN = 2
#: For how long a duty has been stuck when it is looked at, from and to.
STUCK_S = (30.0, 7200.0)


def healthy(kind: Phase) -> Callable[[Scene], bool]:
    """The job is in this phase, which ends; at a random instant of it somebody looks."""

    def plant(scene: Scene) -> bool:
        if not _fits(scene, kind):
            return False
        living.healthy(scene)
        longest = _between(scene.rng, kind.seconds)
        workers = _workers(scene, kind.who)
        lasting = {rank: longest * scene.rng.uniform(1.0 - kind.spread, 1.0) for rank in workers}
        lasting[scene.rng.choice(workers)] = longest
        for rank, seconds in lasting.items():
            _put(scene, rank, kind.calls, kind.parts, seconds)
        _others(scene, kind, workers, longest)
        return True

    return plant


def stuck(kind: Phase) -> Callable[[Scene], bool]:
    """One rank at this duty never comes back from it."""

    def plant(scene: Scene) -> bool:
        if not _fits(scene, kind):
            return False
        culprit = scene.rng.choice(_workers(scene, kind.who))
        _put(scene, culprit, kind.calls, (Part(1.0, scene.rng.choice(kind.stuck)),), inf)
        _others(scene, kind, (culprit,), inf)
        scene.blame(culprit)
        scene.looks = (inf,) * LOOKS
        scene.since = _between(scene.rng, STUCK_S)
        if scene.rng.random() < STATED:
            scene.stated = round(scene.since + (LOOKS - 1) * GAP_S)
        return True

    return plant


def look(scene: Scene) -> None:
    """Says when a job in a healthy phase is looked at, at any instant of it, and what is stated of it then."""
    begins = max(_begins(scene, rank) for rank in scene.duties)
    ends = max(scene.processes[rank].times[duty.at] for rank, duty in scene.duties.items())
    scene.trains, scene.end = ends, min(process.times[-1] for process in scene.processes)
    length = ends - begins
    scene.since = scene.rng.uniform(min(STATED_FROM_S, 0.2 * length), 0.95 * length)
    scene.looks = tuple(begins + scene.since + number * GAP_S for number in range(LOOKS))
    if scene.since >= STATED_FROM_S and scene.looks[-1] < ends and scene.rng.random() < STATED:
        scene.stated = round(scene.looks[-1] - begins)


def moment(scene: Scene, rank: int, time: float, number: int) -> Moment:
    """Where a rank is in its phase at an instant of the job, or at a look of one that is stuck."""
    duty, lives = scene.duties[rank], time != inf
    begins = _begins(scene, rank) if lives else 0.0
    if rank not in scene.timelines:
        first = scene.looks[0] - begins if lives else scene.since
        lasts = duty.seconds if lives else inf
        scene.timelines[rank] = Timeline(duty.parts, lasts, first, Random(f"{scene.salt} {rank} phase"))
    return scene.timelines[rank].at(time - begins if lives else scene.since + number * scene.gap)


def _begins(scene: Scene, rank: int) -> float:
    at = scene.duties[rank].at
    return scene.processes[rank].times[at - 1] if at else 0.0


def _between(rng: Random, ends: tuple[float, float]) -> float:
    """Short ones are met as often as long ones: the logarithm is uniform."""
    low, high = ends
    return exp(rng.uniform(log(low), log(high)))


def _fits(scene: Scene, kind: Phase) -> bool:
    scene.fresh, scene.gap = kind.start, GAP_S
    return not kind.frameworks or scene.job.framework in kind.frameworks


def _workers(scene: Scene, who: Who) -> list[int]:
    ranks = range(len(scene.processes))
    if who is Who.ALL:
        return list(ranks)
    if who is Who.LOCAL:
        return [members[0] for members in scene.job.topology.machines.values()]
    return [0] if who is Who.FIRST else [scene.rng.choice(ranks)]


def _put(scene: Scene, rank: int, calls: tuple[Frame, ...], parts: tuple[Part, ...], seconds: float) -> None:
    """Before a step the rank is in a phase for so long, for ever if need be."""
    process, at = scene.processes[rank], _at(scene, rank)
    place = Place((*process.ops[at].place.main[:TRAINERS_OWN], *calls))
    code = Code.STALL if seconds == inf else Code.HOST
    scene.insert(rank, at, Op(code, place, seconds / process.pace, kind=PHASE))
    scene.duties[rank] = Duty(at, parts, seconds)


def _others(scene: Scene, kind: Phase, workers: Collection[int], seconds: float) -> None:
    """What the others do meanwhile; and where all meet at its end."""
    for process in scene.processes:
        rank = process.rank
        if rank not in workers and kind.meanwhile:
            _put(scene, rank, kind.calls, (Part(1.0, kind.meanwhile),), seconds)
        if kind.ends:
            at = _at(scene, rank)
            place = Place((*process.ops[at].place.main[:TRAINERS_OWN], *kind.ends))
            meets = Op(Code.COLLECTIVE, place, 1e-4, "world", kind.ends[-1].function, 1, mode=Mode.HOST)
            scene.insert(rank, at + (rank in scene.duties), meets)


def _at(scene: Scene, rank: int) -> int:
    return scene.marks[rank][0 if scene.fresh else TRAINED]
