"""Groups a job's machines for replay so that failing groups cross at the faulty machine.

These are ByteRobust's two phases, and a third. There are `count` groups of `size` machines, N = size * count. One
pipeline has consecutive numbers; TP and PP stay as they are, DP shrinks (ByteRobust, SOSP 2025, section 5.2). The group
of machine x:

    phase H, neighbours:  x div size
    phase V, strides:     x mod count
    phase D, diagonals:   (x div size + step * (x mod size)) mod count

Two phases are exact for one fault that always shows, if size <= count. With a `step` by which any two machines share at
most one group over all phases, three are exact for two faults. A sound machine in a failed group of every phase would
share two of them with one of the faults.
"""

from collections.abc import Collection, Sequence
from math import gcd

Groups = tuple[tuple[int, ...], ...]


def phases(size: int, count: int, third: bool = True) -> tuple[Groups, ...]:
    """The groups of each phase: H and V, and D if `third` and a step exists.

    Each group lists machine numbers; each phase has every machine once. Raises ValueError if size > count: groups of
    neighbours would then meet more than once.
    """
    if not 1 <= size <= count:
        raise ValueError(f"groups of {size} need at least {size} of them, not {count}")
    machines = range(size * count)
    found = [_grouped([x // size for x in machines], count), _grouped([x % count for x in machines], count)]
    step = diagonal_step(size, count) if third else None
    if step is not None:
        found.append(_grouped([(x // size + step * (x % size)) % count for x in machines], count))
    return tuple(found)


def diagonal_step(size: int, count: int) -> int | None:
    """The smallest step by which no two machines meet twice in H, V and D; None if there is none, as with (5, 6)."""
    return next((step for step in range(1, count) if separates(size, count, step)), None)


def separates(size: int, count: int, step: int) -> bool:
    """Whether any two machines share at most one group over H, V and D with this step."""
    return size <= count and count // gcd(step, count) >= size and count // gcd(size * step - 1, count) >= size


def crossing(groups: Sequence[Groups], failed: Sequence[Collection[int]]) -> tuple[int, ...]:
    """The machines in a failed group of every phase; `failed` has the group numbers of each phase."""
    left = [{x for number in numbers for x in phase[number]} for phase, numbers in zip(groups, failed, strict=True)]
    return tuple(sorted(set.intersection(*left))) if left else ()


def _grouped(numbers: Sequence[int], count: int) -> Groups:
    members: list[list[int]] = [[] for _ in range(count)]
    for machine, number in enumerate(numbers):
        members[number].append(machine)
    return tuple(map(tuple, members))
