"""Average linkage: joins the two nearest clusters while they are nearer than the cut, deterministically."""

from collections.abc import Sequence

from hangdog_models.diagnosis.clustering.distance import CUT


def linkage(distances: Sequence[Sequence[float]], counts: Sequence[int], cut: float = CUT) -> list[int]:
    """The cluster of each point, numbered by first appearance; `distances` is square and symmetric.

    `counts`: the number of ranks of each point. Means are over ranks, so that a few odd stacks of a crowd do not push
    it away. Points at `cut` or more from all others stay alone; ties go to the first pair.

    The time grows with the square of the points, as nearest neighbours are kept; with their cube in contrived cases.
    """
    apart = [list(row) for row in distances]
    size = list(counts)
    member = list(range(len(apart)))
    alive = set(member)
    nearest = [_nearest(apart, at, alive) for at in member]
    while True:
        low = min(((apart[at][nearest[at]], at) for at in alive if nearest[at] >= 0), default=(cut, -1))
        if low[0] >= cut:
            break
        into, gone = sorted((low[1], nearest[low[1]]))
        total = size[into] + size[gone]
        for at in alive:
            mean = (apart[into][at] * size[into] + apart[gone][at] * size[gone]) / total
            apart[into][at] = apart[at][into] = mean
        size[into] = total
        alive.remove(gone)
        member = [into if at == gone else at for at in member]
        for at in alive:
            if at == into or nearest[at] in (into, gone):
                nearest[at] = _nearest(apart, at, alive)
    number = {at: n for n, at in enumerate(dict.fromkeys(member))}
    return [number[at] for at in member]


def _nearest(apart: Sequence[Sequence[float]], at: int, alive: set[int]) -> int:
    """The point nearest to `at`; -1 if it is the only one left."""
    return min((other for other in alive if other != at), key=lambda other: (apart[at][other], other), default=-1)
