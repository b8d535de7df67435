"""Healthy phases of real trainers, replayed through the agent's watch for some run-hours, evict nobody; a hang is found in them.

`python bench/healthy record` makes the recordings anew, `python bench/healthy replay` prints what 200 run-hours come to.
"""

import pytest

from healthy.recording import ENDING, RECORDINGS, read
from healthy.replay import hang, playable, recorded, replay
from healthy.timeline import TRAINING

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

#: Run-hours of each framework: enough for each of its phases once or twice.
HOURS = 1.5
#: A job that hangs while it trains is suspected so soon. Seconds.
SOON_S = 15.0


@pytest.mark.parametrize("framework", recorded())
def test_replayed_healthy_hours_evict_nobody(framework: str) -> None:
    outcome = replay(framework, (), HOURS, seed=1, hangs=False)
    assert sum(outcome.seconds.values()) >= HOURS * 3600.0
    assert not [alarm for alarm in outcome.alarms if alarm.evicted]
    assert sum(not alarm.again for alarm in outcome.alarms) <= 1


@pytest.mark.parametrize(
    ("framework", "phase"),
    [
        ("lightning", "evaluation-all"),
        ("transformers", "evaluation-python"),
        ("lightning", "evaluation-python"),
        ("transformers", "checkpoint"),
        ("lightning", "checkpoint"),
        ("transformers", "upload"),
        ("jax", "compile"),
    ],
)
def test_what_once_evicted_a_healthy_machine_is_no_incident_any_more(framework: str, phase: str) -> None:
    """Live, 14 to 20 s into these phases a machine was to be evicted: each is played in jobs that were never seen before."""
    for seed in range(3):
        outcome = replay(framework, (phase,), 0.5, seed, hangs=False)
        assert outcome.seconds[phase] > 20.0
        assert not outcome.alarms


@pytest.mark.slow
@pytest.mark.parametrize("framework", recorded())
def test_hours_of_healthy_phases_open_two_incidents_in_a_hundred_at_most(framework: str) -> None:
    """Of the framework's share: `python bench/healthy replay` asks the same of 200 hours."""
    outcome = replay(framework, (), 12.0, seed=11, hangs=False)
    assert not [alarm for alarm in outcome.alarms if alarm.evicted]
    assert sum(not alarm.again for alarm in outcome.alarms) <= 1


@pytest.mark.parametrize("framework", recorded())
def test_a_hang_in_replayed_training_is_suspected_soon(framework: str) -> None:
    recordings = playable(framework, (TRAINING,))
    found = hang(framework, recordings, recordings[TRAINING], 60)
    assert found.suspected_s is not None and found.suspected_s <= SOON_S


def test_the_same_seed_gives_the_same_hours() -> None:
    once, again = (replay("transformers", ("quota",), 0.5, seed=3, hangs=False) for _ in range(2))
    assert once == again


def test_recordings_are_whole_and_stay_small() -> None:
    paths = sorted(RECORDINGS.rglob(f"*{ENDING}"))
    assert len({path.parent for path in paths}) == len(recorded()), "training is recorded of every framework"
    assert sum(path.stat().st_size for path in paths) < 3 << 20
    for path in paths:
        recording = read(path)
        assert (recording.framework, recording.phase) == (path.parent.name, path.name.removesuffix(ENDING))
        assert all(process.looks for process in recording.trainers().values())
