"""When the steps of a job have become slower, and what is only a phase, a drift, noise, another start or a clock."""

import math
import random
import re
from collections.abc import Callable

import pytest

from hangdog_models.planning.slowdown import Slowdown, SlowdownSettings, StepTimes

SETTINGS = SlowdownSettings(share=0.1, sample_s=8.0, settle_s=300.0, usual_s=1800.0, alarm_h=1000.0)
STEP_S = 0.5
#: A rise is told within so long where steps take less: a minute of samples, and what noise hides of them. Seconds.
TOLD_S = 110.0

#: How much longer than usual a step takes at that moment.
Pace = Callable[[float], float]


class Training:
    """A job whose ends of steps are read once a second; `vary` is how far a step's time varies, as a share of it."""

    def __init__(self, vary: float = 0.04, seed: int = 1, alike: float = 0.0, step_s: float = STEP_S) -> None:
        self.times = StepTimes(SETTINGS)
        self.at, self.steps, self.step_s = 0.0, 0, step_s
        self._chance, self._vary, self._alike, self._state = random.Random(seed), vary, alike, 0.0
        self._read = 0.0

    def until(self, end: float, pace: Pace = lambda at: 1.0) -> float | None:
        """Trains until then; the moment from which it is told to be slower."""
        told = None
        while self.at < end:
            chance = self._chance.gauss(0.0, self._vary)
            self._state = self._alike * self._state + math.sqrt(1 - self._alike**2) * chance
            self.at += self.step_s * pace(self.at) * math.exp(self._state)
            self.steps += 1
            if self.at - self._read >= 1.0:
                self._read = math.ceil(self.at)
                self.times.take(self.steps, self._read)
                told = self.at if told is None and self.times.slowdown is not None else told
        return told

    def pause(self, seconds: float) -> None:
        self.at += seconds

    @property
    def slow(self) -> Slowdown | None:
        return self.times.slowdown


@pytest.mark.parametrize("rise", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_rise_that_lasts_is_told_within_two_minutes(rise: float, seed: int) -> None:
    job = Training(seed=seed)
    assert job.until(1200.0) is None
    told = job.until(1500.0, lambda at: 1 + rise)
    assert told is not None and told - 1200.0 <= TOLD_S
    assert job.slow is not None and job.slow.step_s / job.slow.usual_s == pytest.approx(1 + rise, rel=0.05)
    assert job.slow.seconds == pytest.approx(300.0, abs=20.0)


def test_a_rise_that_noise_hides_now_and_then_takes_longer_to_tell() -> None:
    told = []
    for seed in range(10):
        job = Training(0.25, seed)
        job.until(1200.0)
        told.append(job.until(1700.0, lambda at: 1.3) is not None)
    assert sum(told) >= 8


def test_a_rise_that_is_not_worth_a_look_is_not_told() -> None:
    job = Training(0.005)
    job.until(1200.0)
    assert job.until(2400.0, lambda at: 1.06) is None
    assert job.until(3600.0, lambda at: 1.2) is not None


def test_what_is_told_names_both_times() -> None:
    for before_s, now_s, values in ((0.5, 0.75, ["0.75 s", "50 %", "0.50 s"]), (20.0, 30.0, ["30 s", "50 %", "20 s"])):
        said = Slowdown(before_s, now_s, 60.0).why
        assert said.startswith("a step takes ") and re.findall(r"[\d.]+ (?:s|%)", said) == values


def test_nothing_is_told_before_the_past_is_known() -> None:
    job = Training()
    job.until(200.0)
    assert job.until(290.0, lambda at: 2.0) is None and not job.times.settled


def test_a_rise_that_ends_is_over_and_one_that_lasts_is_the_new_pace() -> None:
    job = Training()
    job.until(1200.0)
    assert job.until(1400.0, lambda at: 1.5) is not None
    job.until(1600.0)
    assert job.slow is None
    job = Training()
    job.until(1200.0)
    assert job.until(1200.0 + SETTINGS.usual_s - 60.0, lambda at: 1.5) is not None and job.slow is not None
    job.until(1200.0 + SETTINGS.usual_s + 60.0, lambda at: 1.5)
    assert job.slow is None, "nobody wants to hear of it for ever"
    assert job.until(4000.0, lambda at: 1.5) is None
    assert job.until(4300.0, lambda at: 2.25) is not None


@pytest.mark.parametrize("pause_s", [20.0, 120.0, 3600.0])
def test_pauses_are_no_slowness_however_long_and_from_the_first_on(pause_s: float) -> None:
    job = Training()
    for number in range(1, 8):
        assert job.until(job.at + 700.0) is None, number
        job.pause(pause_s)
    assert job.until(job.at + 700.0) is None


def test_a_phase_in_which_steps_are_slower_is_known_when_it_comes_again() -> None:
    """A checkpoint that is written beside training for a minute and a half."""
    job, told = Training(), []
    for _ in range(6):
        job.until(job.at + 900.0)
        told.append(job.until(job.at + 90.0, lambda at: 1.4) is not None)
    assert told[0] and not any(told[1:])


def test_a_drift_is_followed() -> None:
    job = Training()
    assert job.until(6 * 3600.0, lambda at: 1 + 0.15 * at / 3600.0) is None


@pytest.mark.slow
@pytest.mark.parallel
@pytest.mark.parametrize(("vary", "alike"), [(0.02, 0.9), (0.05, 0.0), (0.05, 0.9), (0.2, 0.0)])
def test_noise_tells_nothing_in_fifty_hours(vary: float, alike: float) -> None:
    job = Training(vary, 3, alike)
    assert job.until(50 * 3600.0) is None


def test_another_start_begins_anew() -> None:
    job = Training()
    job.until(1200.0)
    job.steps = 0
    assert job.until(6000.0, lambda at: 2.0) is None, "it may be another model by now"


def test_longer_samples_from_the_start_are_the_job_s_own_pace() -> None:
    job = Training()
    assert job.until(3600.0, lambda at: 1.6) is None


def test_a_clock_that_stands_or_goes_back_changes_nothing() -> None:
    job = Training()
    job.until(1200.0)
    for at in (1200.0, 0.0, -5.0, 1190.0):
        job.times.take(job.steps + 1, at)
    assert job.slow is None and job.until(2400.0) is None


def test_long_steps_are_samples_each() -> None:
    job = Training(step_s=40.0)
    assert job.until(7200.0) is None
    told = job.until(9000.0, lambda at: 1.5)
    assert told is not None and told - 7200.0 <= 12 * 60.0


def test_fewer_false_alarms_take_longer_to_be_sure() -> None:
    assert SETTINGS.needed == 8
    assert SlowdownSettings(0.1, 8.0, 300.0, 1800.0, 100_000.0).needed == 11
    assert SlowdownSettings(0.1, 0.0, 300.0, 1800.0, 0.0).needed == 1, "nonsense is borne"
