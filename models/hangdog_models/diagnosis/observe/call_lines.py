"""Two lines of one function are two call sites: finds ranks at another line than their peers, with all else equal."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdog_models.diagnosis.observe.activity import RankState, sites
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity

#: So many ranks at one line are a majority to compare another rank with.
CROWD_LEAST = 3
#: Operations that one rank, the root, calls differently from the others and often at a line of its own.
_ROOTED = ("broadcast", "broadcast_object_list", "scatter", "scatter_object_list", "gather", "gather_object", "reduce")

Site = tuple[RankState, list[Rank]]


def tell_apart(look: Look, motion: Motion, topology: Topology) -> Look:
    """The round, with ranks at another line than their peers marked as `astray`.

    Ranks are marked where one function shows two lines only, most ranks at one and at most one machine's at the other.

    - Lines that spread over the ranks mark none.
    - A rank that reached the function through other frames is not marked: its files may be another version.
    - Ranks are compared within their stage, for pipeline stages take turns in one function.
    """
    places: dict[tuple[object, ...], list[Site]] = {}
    for state, ranks in sites(look):
        if state.line and _rests(state, motion):
            way = (state.wait, state.place, state.frames[: state.caller], state.signature and state.signature.digest)
            places.setdefault(way, []).append((state, ranks))
    stages = {rank: at for group in topology.groups.get("pp", ()) for at, rank in enumerate(group)}
    astray: dict[Rank, RankState] = {}
    for found in places.values():
        for state, ranks in _odd(found, stages, motion, topology) if len(found) > 1 else ():
            astray.update(dict.fromkeys(ranks, replace(state, astray=True)))
    return {**look, **astray} if astray else look


def _rests(state: RankState, motion: Motion) -> bool:
    """Whether its line is that of the call which it waits in, as far as is known.

    Without a matching rule, only a rank that sleeps in several rounds counts. A rank that launches or computes is at
    any line of a function.
    """
    if state.wait is Wait.GROUP:
        return state.operation not in _ROOTED
    unnamed = state.wait is Wait.NONE and state.activity in (Activity.UNKNOWN, Activity.IDLE)
    return unnamed and motion.known and state.busy is False


def _odd(found: Sequence[Site], stages: Mapping[Rank, int], motion: Motion, topology: Topology) -> list[Site]:
    """The states at one call site that differ from the rest of their stage, each with its ranks."""
    of_stage: dict[int, list[Site]] = {}
    for state, ranks in found:
        split: dict[int, list[Rank]] = {}
        for rank in ranks:
            split.setdefault(stages.get(rank, 0), []).append(rank)
        for stage, here in split.items():
            of_stage.setdefault(stage, []).append((state, here))
    return [site for members in of_stage.values() for site in _odd_of_stage(members, motion, topology)]


def _odd_of_stage(members: Sequence[Site], motion: Motion, topology: Topology) -> list[Site]:
    lines: dict[int, list[Site]] = {}
    for site in members:
        lines.setdefault(site[0].line, []).append(site)
    if len(lines) != 2:
        return []
    sides = [[rank for _, ranks in side for rank in ranks] for side in lines.values()]
    odd, crowd = sorted(sides, key=len)
    clear = len(crowd) >= CROWD_LEAST and len(crowd) > 2 * len(odd)
    at_rest = not motion.known or motion.still.issuperset([*odd, *crowd])
    if not clear or not at_rest or len(topology.machines_of(odd)) > 1:
        return []
    return next(found for found, side in zip(lines.values(), sides, strict=True) if side is odd)
