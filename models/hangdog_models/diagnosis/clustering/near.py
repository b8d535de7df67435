"""From exact classes to near ones: which classes may be compared, and what a model gets of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.clustering.distance import CUT, Path, Rarity, StackFeatures, Step, distance, path
from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.topology import Topology

#: From the square of distances and the ranks of each point, to the cluster of each point.
Model = Callable[[Sequence[Sequence[float]], Sequence[int]], list[int]]

#: So many distances are computed among stacks of one activity, operation and group: 140 stacks, each with each, take a
#: quarter of a second. Of more, the most frequent are compared; the others join the nearest of those or stay alone.
PAIRS_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Point:
    """Classes whose stacks are the same path, `ranks` in all."""

    seen: StackFeatures
    classes: tuple[Cluster, ...]
    ranks: int


def near(classes: Sequence[Cluster], topology: Topology, model: Model) -> tuple[Cluster, ...]:
    """Joins classes that are one call site but for jitter; largest first, then by lowest rank.

    Only classes of one activity, operation and group are compared, or those that no rule matches. So the culprit is
    never joined with ranks that wait in a named operation. A class without a stack stays alone.
    """
    blocks: dict[tuple[object, ...], list[Cluster]] = {}
    for one in classes:
        if one.sample.signature is not None and one.sample.signature.kept:
            blocks.setdefault(_block(one.sample), []).append(one)
    found = [one for one in classes if one.sample.signature is None or not one.sample.signature.kept]
    if all(len(block) == 1 for block in blocks.values()):
        return tuple(classes)
    for points in _points(blocks.values(), topology):
        found += [_joined(members) for members in _together(points, model)]
    return tuple(sorted(found, key=lambda cluster: (-len(cluster.ranks), cluster.ranks[0])))


def _block(state: RankState) -> tuple[object, ...]:
    """What classes must have in common to be compared. Why a capture was partial is not part of it."""
    return (state.activity, state.wait, state.operation, state.dim, state.astray)


def _points(blocks: Iterable[Sequence[Cluster]], topology: Topology) -> Iterator[list[Point]]:
    """The points of each block, most frequent first.

    Rarity is counted in the stage that most of a point's ranks are in. Ties are broken by the path, not by rank:
    renaming the ranks must not change the answer.
    """
    stage = {rank: at for group in topology.groups.get("pp", ()) for at, rank in enumerate(group)}
    ranks: Counter[int] = Counter()
    having: dict[int, Counter[Step]] = defaultdict(Counter)
    ending: dict[int, Counter[Step]] = defaultdict(Counter)
    drafts: list[list[tuple[Path, tuple[Cluster, ...], Counter[int]]]] = []
    for block in blocks:
        same: dict[Path, list[Cluster]] = {}
        for one in block:
            same.setdefault(path(one.sample), []).append(one)
        drafts.append([])
        for steps, members in same.items():
            staged = Counter(stage.get(rank, -1) for one in members for rank in one.ranks)
            drafts[-1].append((steps, tuple(members), staged))
            ranks.update(staged)
            for at, count in staged.items():
                having[at].update(dict.fromkeys(steps, count))
                ending[at][steps[-1]] += count
    rarities = {at: Rarity(ranks[at], having[at], ending[at]) for at in ranks}
    for draft in drafts:
        points = [
            Point(StackFeatures.among(steps, rarities[_home(staged)]), members, staged.total())
            for steps, members, staged in draft
        ]
        yield sorted(points, key=lambda point: (-point.ranks, point.seen.path))


def _home(staged: Counter[int]) -> int:
    """The stage that most of them are in."""
    return min(staged, key=lambda at: (-staged[at], at))


def _together(points: Sequence[Point], model: Model) -> list[list[Cluster]]:
    """The classes of each cluster."""
    leads = _leads(len(points))
    square = [[0.0] * leads for _ in range(leads)]
    for at in range(leads):
        for to in range(at):
            square[at][to] = square[to][at] = _apart(points[at], points[to])
    labels = model(square, [point.ranks for point in points[:leads]]) if leads else []
    for at in range(leads, len(points)):
        apart, lead = min(((_apart(points[at], points[lead]), lead) for lead in range(leads)), default=(1.0, 0))
        labels.append(labels[lead] if apart < CUT else len(points) + at)
    found: dict[int, list[Cluster]] = {}
    for label, point in zip(labels, points, strict=True):
        found.setdefault(label, []).extend(point.classes)
    return list(found.values())


def _leads(points: int) -> int:
    """How many points are compared with every other one, so that there are at most `PAIRS_MOST` distances."""
    return points if points * (points - 1) <= 2 * PAIRS_MOST else PAIRS_MOST // points


def _apart(one: Point, other: Point) -> float:
    sample = one.classes[0].sample
    operation = sample.operation is not None
    group = operation and sample.dim is not None
    return distance(one.seen, other.seen, operation=operation, group=group)


def _joined(members: Sequence[Cluster]) -> Cluster:
    """One cluster of several classes, shown by the stack that most of its ranks have."""
    if len(members) == 1:
        return members[0]
    shown = min(members, key=lambda one: (-len(one.ranks), one.ranks[0]))
    return Cluster(tuple(sorted(rank for one in members for rank in one.ranks)), shown.sample)
