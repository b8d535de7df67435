"""Whose devices come late to collectives, by what profiler rings showed between the rounds of a moving job.

Each reading is of one rank alone: it is inside a collective and waits, or it is not. So nothing depends on whether the rings
of two machines are read at the same moment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Round
from hangdog_models.stack import TRAINER
from hangdog_models.topology import Topology


def marked(looks: Sequence[Look], rounds: Sequence[Round], topology: Topology) -> list[Look]:
    """The rounds with `device_late` where rings tell it; the first never has it, for it has none to compare with."""
    before: Mapping[Rank, DeviceReadings] = {}
    found: list[Look] = []
    for look, round_ in zip(looks, rounds, strict=True):
        now = {
            trace.rank: trace.state.device
            for trace in round_.traces
            if trace.role == TRAINER and trace.state is not None and trace.state.device is not None
        }
        late = _late({rank: _grown(before[rank], device) for rank, device in now.items() if rank in before}, topology)
        found.append(_with(look, late) if late else look)
        before = {**before, **now}
    return found


def _grown(before: DeviceReadings, now: DeviceReadings) -> DeviceReadings:
    """What was read in between; of a ring that begins anew all."""
    counts = now.waiting - before.waiting, now.behind - before.behind, now.sending - before.sending
    if min(counts) < 0:
        counts = now.waiting, now.behind, now.sending
    return DeviceReadings(*counts, now.communicator, now.number, now.peer)


def _late(grown: Mapping[Rank, DeviceReadings], topology: Topology) -> dict[Rank, bool]:
    """Whether each rank's device was late; empty if most were, for then most compute, and nobody is waited for.

    A network card that is slow holds up the transfers from its machine and those to it. So the machine at an end of all
    paths with data under way is late, and the other ends wait.
    """
    sending = {rank: one for rank, one in grown.items() if one.sending > one.waiting and one.sending >= one.behind}
    late = {
        rank: one.behind > one.waiting
        for rank, one in grown.items()
        if rank not in sending and one.behind != one.waiting
    }
    paths = _paths(sending, grown)
    ends = [frozenset(_unit(rank, topology) for rank in path) for path in paths]
    shared = frozenset.intersection(*ends) if ends else frozenset()
    if shared and len(set(ends)) < _most_paths(grown, topology):
        late |= {rank: _unit(rank, topology) in shared for path in paths for rank in path}
    return late if 2 * sum(late.values()) <= len(late) else {}


def _paths(sending: Mapping[Rank, DeviceReadings], grown: Mapping[Rank, DeviceReadings]) -> list[tuple[Rank, ...]]:
    """Sender and receiver of what is under way; the sender alone where it is not known whose number the receiver's is."""
    ranks = {(one.communicator, one.number): rank for rank, one in grown.items() if one.number >= 0}
    found: list[tuple[Rank, ...]] = []
    for rank, one in sorted(sending.items()):
        receiver = ranks.get((one.communicator, one.peer))
        found.append((rank, receiver) if receiver is not None and receiver != rank else (rank,))
    return found


def _most_paths(grown: Mapping[Rank, DeviceReadings], topology: Topology) -> int:
    """The number of machines: with data under way on as many paths, it is under way everywhere."""
    return max(2, len({_unit(rank, topology) for rank in grown}))


def _unit(rank: Rank, topology: Topology) -> str:
    return topology.machine(rank) or f"rank {rank}"


def _with(look: Look, late: Mapping[Rank, bool]) -> Look:
    """Ranks that share a state share the new one, too."""
    made: dict[tuple[int, bool], RankState] = {}
    found = dict(look)
    for rank, is_late in late.items():
        state = look.get(rank)
        if state is not None:
            key = id(state), is_late
            if key not in made:
                made[key] = replace(state, device_late=is_late)
            found[rank] = made[key]
    return found
