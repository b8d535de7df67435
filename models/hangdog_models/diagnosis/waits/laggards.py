"""Ranks that are behind in process groups by themselves, not because they wait for a rank that is behind."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hangdog_models.diagnosis.waits.positions import Group, Position, called, operation
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank

#: Operations that end on some members before others have come, or in which each member has its own part.
_ONE_SIDED = ("broadcast", "reduce", "gather", "scatter", "send", "recv", "coalesced")
_OF_ALL = ("reduce_scatter",)
#: From so many members on, one that alone has not completed an operation is behind, rather than the other one early.
_ALONE_AMONG = 4


def left_behind(groups: Mapping[Group, Mapping[Rank, Position]]) -> dict[Rank, dict[str, str]]:
    """For each rank the groups in which a peer completed more, and the first such operation.

    An all-reduce, all-gather or all-to-all ends on no member before all have given their part. So the rank's host came,
    and its device is behind. If it never launched what peers completed, its numbers differ: it skipped operations.

    One operation in one group is the difference between dumps of two moments. It counts only if it is of one rank
    alone.
    """
    found: dict[Rank, dict[str, str]] = {}
    clear: set[Rank] = set()
    for (name, listed), users in groups.items():
        positions = {rank: position for rank, position in users.items() if not listed or rank in listed}
        if len(positions) < 2:
            continue
        furthest = max(position.completed for position in positions.values())
        late = [
            (rank, position)
            for rank, position in positions.items()
            if position.completed < furthest <= position.enqueued
            and ends_together(operation(position, name, position.completed + 1))
        ]
        for rank, position in late:
            number = position.completed + 1
            what = f"{operation(position, name, number)} {number} of {called(name, positions)}"
            found.setdefault(rank, {})[name] = what
            alone = len(late) == 1 and len(positions) >= _ALONE_AMONG
            if alone or furthest - position.completed > 1 or len(found[rank]) > 1:
                clear.add(rank)
    return {rank: numbers for rank, numbers in found.items() if rank in clear}


def ends_together(called: str) -> bool:
    """Whether an operation of this name ends on no member before all have come."""
    name = called.lstrip("_")
    return name.startswith(_OF_ALL) or not name.startswith(_ONE_SIDED)


def laggards(holds: Sequence[GroupWait], behind: Mapping[Rank, Iterable[str]]) -> set[Rank]:
    """Of the ranks inside an operation, those that others finally wait for.

    A rank that waits for one outside is late because of that one. In a circle, ranks behind in more than half as many
    groups as the worst are late by themselves, if at most half of the circle are. The rest are late because of them.
    Equal ones entered their groups in different orders.

    `behind`: the groups in which each rank's device is behind.
    """
    late: dict[Rank, set[str]] = {rank: set(groups) for rank, groups in behind.items()}
    for hold in holds:
        for rank in hold.awaited if hold.group else ():
            late.setdefault(rank, set()).add(hold.group)
    found: set[Rank] = set()
    for circle in _last_circles(holds):
        if len(circle) == 1:
            found.update(rank for rank in circle if rank in behind)
            continue
        most = max(len(late.get(rank, ())) for rank in circle)
        first = {rank for rank in circle if 2 * len(late.get(rank, ())) > most}
        if most > 1 and 2 * len(first) <= len(circle):
            found |= first
    return found


def freed(holds: Iterable[GroupWait], guilty: Container[Rank]) -> list[GroupWait]:
    """The group waits without the ranks that are late by themselves, whatever operations they have under way."""
    found = []
    for hold in holds:
        inside = tuple(rank for rank in hold.inside if rank not in guilty)
        if len(inside) == len(hold.inside):
            found.append(hold)
        elif inside:
            late = () if hold.awaited else tuple(rank for rank in hold.inside if rank in guilty)
            found.append(replace(hold, inside=inside, awaited=(*hold.awaited, *late)))
    return found


def without_doubtful(holds: Sequence[GroupWait], turns: Mapping[Rank, Mapping[str, int]]) -> list[GroupWait]:
    """The group waits, with members moved to late that wait in another group.

    It concerns groups that only host launches show to have joined. Devices run operations in turn. So what such a
    member launched may not have begun, and the member is late for it. It is not late if it launched that before the
    other one, by the order in `turns` where both are recorded.

    Where the order is not recorded, groups of the same size prove nothing either: a launch on all hosts does not show
    that it runs.
    """
    doubtful: dict[Rank, list[int]] = {}
    late: dict[int, set[Rank]] = {}
    elsewhere: dict[Rank, list[int]] = {}  # the group waits in which a rank waits
    for at, hold in enumerate(holds):
        for rank in hold.inside if hold.awaited else ():
            elsewhere.setdefault(rank, []).append(at)
        if not hold.begun and hold.joined:
            late[at] = set()
            for rank in hold.inside:
                doubtful.setdefault(rank, []).append(at)

    def before(rank: Rank, through: int, at: int) -> bool:
        """Whether the operation in which it waits may come before the one that all have launched."""
        turn = turns.get(rank, {})
        here, there = turn.get(holds[at].group), turn.get(holds[through].group)
        return at != through and (here is None or there is None or there < here)

    edge = [(rank, through) for rank in doubtful for through in elsewhere.get(rank, ())]
    while edge:
        rank, through = edge.pop()
        for at in doubtful.get(rank, ()):
            if rank not in late[at] and before(rank, through, at):
                if not late[at]:  # now its other members wait for this one
                    fresh = [other for other in holds[at].inside if other != rank and other not in elsewhere]
                    elsewhere.update((other, [at]) for other in fresh)
                    edge.extend((other, at) for other in fresh)
                late[at].add(rank)
    unordered = {
        len(holds[at].inside) for at, gone in late.items() if any(_unordered(holds[at], turns.get(r)) for r in gone)
    }
    found = []
    for at, hold in enumerate(holds):
        if at in late and not late[at] and len(hold.inside) in unordered and _unordered(hold, None):
            found.append(replace(hold, complete=False))
            continue
        gone = late.get(at, set())
        inside = tuple(rank for rank in hold.inside if rank not in gone)
        if not gone:
            found.append(hold)
        elif inside:
            found.append(replace(hold, inside=inside, awaited=tuple(sorted(gone))))
    return found


def _unordered(hold: GroupWait, turns: Mapping[str, int] | None) -> bool:
    """Whether no record shows in which order a rank launched the collective."""
    return hold.group not in ("", *(turns or ()))


def _last_circles(holds: Sequence[GroupWait]) -> list[list[Rank]]:
    """The sets of ranks that wait for each other, directly or not, and for no rank outside; a single rank waits for
    none.

    Operations are nodes between the ranks inside and the awaited ones. Ranks have their own numbers, operations
    negative ones.
    """
    ahead: dict[int, Sequence[int]] = {rank: [] for hold in holds for rank in hold.inside}
    for at, hold in enumerate(holds, 1):
        if hold.awaited:
            ahead[-at] = hold.awaited
            for rank in hold.inside:
                ahead[rank] = [*ahead[rank], -at]
    circles = _circles(ahead)
    circle_of = {node: number for number, circle in enumerate(circles) for node in circle}
    return [
        sorted(Rank(node) for node in circle if node >= 0)
        for number, circle in enumerate(circles)
        if max(circle) >= 0
        and all(circle_of[following] == number for node in circle for following in ahead.get(node, ()))
    ]


def _circles(ahead: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The strongly connected components of a graph (Tarjan's algorithm, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    closed: set[int] = set()
    open_nodes: list[int] = []
    found: list[list[int]] = []
    for start in ahead:
        path: list[tuple[int, Iterator[int]]] = []
        following: int | None = start if start not in order else None
        while path or following is not None:
            if following is not None and following not in order:
                order[following] = low[following] = len(order)
                open_nodes.append(following)
                path.append((following, iter(ahead.get(following, ()))))
            node, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    circle = [open_nodes.pop()]
                    while circle[-1] != node:
                        circle.append(open_nodes.pop())
                    closed.update(circle)
                    found.append(circle)
            elif following in order and following not in closed:
                low[node] = min(low[node], order[following])
    return found
