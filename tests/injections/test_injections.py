"""Faults inside collectives, played chunk by chunk: what the rings show of them, and what the watch and the diagnosis make of it."""

from math import inf

import pytest

from hangdog_models.progress.collective_progress import Awaited, Phase
from injections.__main__ import FAULTS, played, right_first, right_kind, wrongly_evicted
from injections.chunks import CHUNKS, COMPUTE_S, RANKS, Fault, play
from injections.rings import ring, shown

pytestmark = [pytest.mark.slow, pytest.mark.parallel]


def test_a_healthy_job_makes_its_steps_and_its_counts_are_in_order() -> None:
    job = play(None, 20.0, 1)
    assert all(len(steps) > 20.0 / (4 * COMPUTE_S) for steps in job.steps)
    for one in (progress for each in shown(job, 10.0) for progress in each.communicators):
        assert one.finished <= one.started <= one.collectives
        assert all(transfer.steps == CHUNKS for flight in one.in_flight for transfer in flight.transfers)


def test_chunks_are_written_before_they_are_sent_and_sent_before_they_are_confirmed() -> None:
    job = play(Fault("NIC slow", 3, 2.0), 10.0, 2)
    for one in (call.sends for calls in job.data for call in calls if call.ended < inf):
        for posted, ready, transmitted, done in zip(one.posted, one.ready, one.transmitted, one.done, strict=True):
            assert posted <= ready <= transmitted < done


@pytest.mark.parametrize(
    ("kind", "awaits"), [("NIC down", Awaited.NETWORK), ("GPU hang", Awaited.GPU), ("mismatched call", Awaited.GPU)]
)
def test_what_stops_for_ever_shows_in_the_ring_of_the_rank_that_was_struck(kind: str, awaits: Awaited) -> None:
    job = play(Fault(kind, 3, 5.0), 60.0, 3)
    _, across = ring(job, 3, 60.0).communicators
    stuck = min(across.in_flight, key=lambda one: one.order)
    assert stuck.phase is (Phase.LAUNCHED if kind == "GPU hang" else Phase.RUNNING)
    assert {one.awaits for one in stuck.transfers if one.sends} == {awaits}
    assert stuck.call.function == ("AllGather" if kind == "mismatched call" else "AllReduce")


def test_a_slow_card_makes_all_steps_longer() -> None:
    sound, slow = play(None, 60.0, 4), play(Fault("NIC slow", 0, 0.0), 60.0, 4)
    assert all(len(slow.steps[rank]) < 0.5 * len(sound.steps[rank]) for rank in range(RANKS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, trigger in FAULTS.items() if trigger == "performance"])
def test_what_slows_a_job_down_is_noticed_in_a_minute_and_its_machine_is_named(kind: str) -> None:
    told = played(kind, 5)
    assert told.triggered_s is not None and told.triggered_s <= 70.0
    assert right_kind(told) and right_first(told) and not wrongly_evicted(told)


@pytest.mark.parametrize("kind", [kind for kind, trigger in FAULTS.items() if trigger == "failure"])
def test_what_stops_a_job_is_suspected_within_ten_seconds_and_its_rank_is_named(kind: str) -> None:
    told = played(kind, 5)
    assert told.triggered_s is not None and told.triggered_s <= 10.0
    assert right_kind(told) and right_first(told) and not wrongly_evicted(told)
