"""Who comes late to collectives by profiler rings, where all hosts stand at one place: votes of each round, and the verdict."""

from collections.abc import Callable, Mapping

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.observe import devices
from hangdog_models.diagnosis.observe.rank_state_reader import RankStateReader
from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import Frame, ProcessState, ProcessTrace, Thread
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Kind, Verdict

WORLD, EACH, LOOKS = 8, 2, 12
WAITS = tuple(
    Frame(name, file, 9) for name, file in (("<module>", "train.py"), ("synchronize", "torch/cuda/__init__.py"))
)
#: What is read of a device between two rounds: how often it waited, was behind, and was sending.
Grows = tuple[int, int, int]
AWAITS, LATE, SENDS, NOT_READ = (3, 1, 0), (0, 3, 0), (1, 0, 3), (0, 0, 0)


def layout() -> Topology:
    return build(Layout(world_size=WORLD, sizes={"tp": EACH, "dp": WORLD // EACH}, ranks_per_machine=EACH), None)[0]


def rounds(grows: Callable[[Rank, int], Grows], peers: Mapping[int, int] | None = None) -> tuple[Round, ...]:
    """Rounds of a job whose hosts wait all the time. Of two rings, one a rank of each machine, each knows its number."""
    counts = {Rank(rank): (0, 0, 0) for rank in range(WORLD)}
    found = []
    for number in range(LOOKS):
        traces = []
        for rank, before in counts.items():
            (a, b, c), (x, y, z) = before, grows(rank, number)
            counts[rank] = waiting, behind, sending = a + x, b + y, c + z
            place = rank // EACH
            peer = (peers or {}).get(rank, -1)
            device = DeviceReadings(waiting, behind, sending, 0xD0 + rank % EACH, place, peer)
            state = ProcessState(1000 + rank, "R", steps=10 * number, device=device)
            thread = Thread("MainThread", 1000 + rank, WAITS, True, False)
            traces.append(ProcessTrace(rank, pid=1000 + rank, threads=(thread,), state=state))
        found.append(Round(number, tuple(traces)))
    return tuple(found)


def judged(taken: tuple[Round, ...]) -> Verdict:
    return diagnose(Snapshot(Job("devices"), taken, 2.2), layout())


def votes(taken: tuple[Round, ...], number: int) -> dict[int, bool]:
    """Who was late in a round, as far as it is known."""
    reader = RankStateReader(packaged(), layout().groups)
    looks = [reader.look(one.traces) for one in taken]
    look = devices.marked(looks, taken, layout())[number]
    return {rank: state.device_late for rank, state in look.items() if state.device_late is not None}


def test_a_device_that_is_late_again_and_again_is_named() -> None:
    verdict = judged(rounds(lambda rank, _: LATE if rank == 5 else AWAITS))
    assert verdict.kind is Kind.SLOW
    assert verdict.suspects[0].machines == ("node-2",) and 5 in verdict.suspects[0].ranks


@pytest.mark.parametrize("grows", [AWAITS, LATE, NOT_READ], ids=["all wait", "all compute", "no ring"])
def test_devices_that_do_the_same_accuse_nobody(grows: Grows) -> None:
    verdict = judged(rounds(lambda _, __: grows))
    assert verdict.kind is Kind.NONE and verdict.suspects == () and verdict.evict.machines == ()


def test_one_that_is_late_in_turn_with_others_is_not_named() -> None:
    verdict = judged(rounds(lambda rank, number: LATE if rank == number % WORLD else AWAITS))
    assert verdict.kind is Kind.NONE and verdict.evict.machines == ()


def test_the_machine_at_an_end_of_all_paths_with_data_under_way_is_named() -> None:
    """Ranks 2 and 3 send to those of node-2, and these to node-3: the card that both have in common is node-2's."""
    peers = {2: 2, 3: 2, 4: 3, 5: 3}
    taken = rounds(lambda rank, _: SENDS if rank in peers else AWAITS, peers)
    assert votes(taken, 3) == {rank: rank in (4, 5) for rank in range(WORLD)}
    verdict = judged(taken)
    assert verdict.kind is Kind.SLOW and verdict.suspects[0].machines == ("node-2",)


def test_data_under_way_everywhere_says_nothing_about_a_card() -> None:
    peers = {rank: (rank // EACH + 1) % (WORLD // EACH) for rank in range(WORLD)}
    taken = rounds(lambda *_: SENDS, peers)
    assert votes(taken, 3) == {}
    assert judged(taken).kind is Kind.NONE


def test_a_path_to_somebody_unknown_is_its_senders() -> None:
    taken = rounds(lambda rank, _: SENDS if rank == 2 else AWAITS, {2: 77})
    assert votes(taken, 3) == {rank: rank == 2 for rank in range(WORLD)}


def test_the_first_round_has_none_to_compare_with_and_a_ring_that_begins_anew_is_read_as_it_is() -> None:
    taken = rounds(lambda rank, number: (-2, -30, 0) if number == 5 and rank == 1 else LATE if rank == 1 else AWAITS)
    assert votes(taken, 0) == {}
    assert votes(taken, 4)[1]


def test_where_readings_tie_the_stack_tells() -> None:
    assert votes(rounds(lambda rank, _: (2, 2, 0) if rank == 3 else AWAITS), 3) == {
        rank: False for rank in range(WORLD) if rank != 3
    }
