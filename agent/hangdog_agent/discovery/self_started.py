"""Ranks that a program starts by itself: Lightning without a launcher runs its own script again, and is the first rank of them.

The copies carry LOCAL_RANK, NODE_RANK and WORLD_SIZE, and no RANK; the program that started them carries none of these
(lightning 2.6.6, fabric/strategies/launchers/subprocess_script.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Started:
    """One Python process as its environment tells it; `local` is None where that has no LOCAL_RANK."""

    pid: int
    parent: int
    local: int | None
    node: int | None
    world: int | None


def ranks(processes: Iterable[Started]) -> Mapping[int, int]:
    """The rank of each process that a program started so, and of that program, by pid.

    None are told before all copies are there: which rank is which depends on how many a machine has.
    """
    table = {process.pid: process for process in processes}
    copies: dict[int, list[Started]] = {}
    for process in table.values():
        if process.local and process.node is not None and process.world:
            copies.setdefault(process.parent, []).append(process)
    found: dict[int, int] = {}
    for parent, below in copies.items():
        first = table.get(parent)
        count = len(below) + 1
        whole = sorted(copy.local or 0 for copy in below) == list(range(1, count))
        alike = {(copy.node, copy.world) for copy in below}
        if first is None or first.local is not None or not whole or len(alike) > 1:
            continue
        node, world = below[0].node or 0, below[0].world or 0
        if world % count == 0 and (node + 1) * count <= world:
            found[parent] = node * count
            found |= {copy.pid: node * count + (copy.local or 0) for copy in below}
    return found
