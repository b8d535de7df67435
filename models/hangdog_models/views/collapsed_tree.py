"""Folds the merged tree into limbs: calls one below the other with the same ranks are one, so that only forks are steps."""

from collections.abc import Sequence
from dataclasses import dataclass

from hangdog_models.ranks import Runs, meet, size
from hangdog_models.views.stack_tree import Call, Node

#: Limbs shown at most: those on the way to a suspect, then those with the most ranks. More is no overview.
MOST = 400
#: Forks one below the other; browsers nest elements to some 500.
DEEPEST = 60


@dataclass(frozen=True, slots=True)
class Branch:
    """Calls without a fork, outermost first; `depth` forks lie above it. `suspect`: it has a suspected rank.

    `ends` are the ranks whose stack ends with its last call; `hidden` limbs right below it are not shown.
    """

    calls: tuple[Call, ...]
    depth: int
    ranks: Runs
    ends: Runs
    suspect: bool
    hidden: int = 0


def folded(nodes: Sequence[Node], suspected: Runs = (), most: int = MOST) -> tuple[Branch, ...]:
    """The limbs of a tree in its order; of more than `most` the less weighty are counted in `hidden` of the ones above."""
    callees: dict[int, list[int]] = {}
    for at, node in enumerate(nodes):
        callees.setdefault(node.parent, []).append(at)
    branches: list[Branch] = []
    above: list[int] = []
    waiting = [(at, -1, 0) for at in reversed(callees.get(-1, []))]
    while waiting:
        at, parent, depth = waiting.pop()
        calls = [nodes[at].call]
        while not nodes[at].ends and len(below := callees.get(at, [])) == 1:
            at = below[0]
            calls.append(nodes[at].call)
        node = nodes[at]
        branches.append(Branch(tuple(calls), depth, node.ranks, node.ends, meet(suspected, node.ranks)))
        above.append(parent)
        waiting += [(callee, len(branches) - 1, depth + 1) for callee in reversed(callees.get(at, []))]
    return _weighty(branches, above, most)


def _weighty(branches: list[Branch], above: list[int], most: int) -> tuple[Branch, ...]:
    """The limbs worth showing. Whoever is shown has its caller shown: that weighs as much, and comes first."""
    order = sorted(range(len(branches)), key=lambda at: (not branches[at].suspect, -size(branches[at].ranks), at))
    kept = {at for at in order[:most] if branches[at].depth <= DEEPEST}
    hidden: dict[int, int] = {}
    for at, parent in enumerate(above):
        if at not in kept and parent in kept:
            hidden[parent] = hidden.get(parent, 0) + 1
    return tuple(
        Branch(one.calls, one.depth, one.ranks, one.ends, one.suspect, hidden.get(at, 0))
        for at, one in enumerate(branches)
        if at in kept
    )
