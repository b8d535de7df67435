"""What counts as a wrong number: NaN, infinity and spikes that stay, and not what is usual in a healthy job."""

import math
import random
from collections.abc import Iterable

import pytest

from hangdog_models.numbers.number_watch import MOST, USUAL, NumberAlarm, NumberThresholds, NumberWatch
from hangdog_models.numbers.wrong_number import Quantity
from hangdog_models.reading.numbers.number_line import lines

NAN, INF = math.nan, math.inf


def watched(
    losses: Iterable[float | None],
    norms: Iterable[float | None] = (),
    extra: str = "",
    thresholds: NumberThresholds = USUAL,
) -> list[NumberAlarm]:
    """What is told of a log with these values, one a step from step 1 on."""
    watch, told = NumberWatch(thresholds), []
    values = list(losses), list(norms)
    for step in range(max(map(len, values))):
        loss, norm = (one[step] if step < len(one) else None for one in values)
        words = (
            [f"step: {step + 1}"] + [f"loss: {loss}"] * (loss is not None) + [f"grad_norm: {norm}"] * (norm is not None)
        )
        for line in lines("  ".join([*words, extra]).strip()):
            told += watch.take(line)
    return told


def wrong(
    losses: Iterable[float | None], norms: Iterable[float | None] = (), extra: str = ""
) -> list[tuple[str, int | None, str]]:
    return [
        (str(one.number.value), one.step, str(one.number.quantity))
        for one in watched(losses, norms, extra)
        if not one.passed
    ]


def falling(steps: int, seed: int = 1) -> list[float]:
    """A healthy loss: it falls, with noise."""
    draw = random.Random(seed)
    return [2.0 + 8.0 * math.exp(-step / 30) + draw.gauss(0.0, 0.1) for step in range(steps)]


def test_nan_that_stays_is_told_once_with_its_first_step_and_what_was_usual() -> None:
    (alarm,) = watched([*falling(50), *[NAN] * 200])
    assert alarm.step == 51 and math.isnan(alarm.number.value) and 2.0 < alarm.median < 7.0
    assert alarm.text == "step 51, loss nan"


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_one_that_is_sound_again_soon_is_told_as_over_and_opens_nothing(value: float) -> None:
    told = watched([*falling(30), value, value, *falling(30)])
    assert [(one.step, one.passed) for one in told] == [(31, 2)]


def test_a_job_that_never_had_a_sound_number_has_no_moment_of_its_own() -> None:
    assert not watched([NAN] * 100)
    assert not watched([0.0] * 50, [NAN] * 50)  # as Transformers log a job in bad precision


@pytest.mark.parametrize(
    ("times", "steps", "count"), [(4.9, 20, 0), (5.1, 4, 0), (5.1, 5, 1), (100.0, 3, 0), (100.0, 50, 1)]
)
def test_a_spike_is_five_times_the_median_and_lasts(times: float, steps: int, count: int) -> None:
    usual = [2.0] * 40
    assert len(wrong([*usual, *[2.0 * times] * steps, *usual])) == count


def test_no_spike_is_told_before_the_median_is_known() -> None:
    assert not wrong([2.0] * 15 + [50.0] * 5)
    assert len(wrong([2.0] * 25 + [50.0] * 5)) == 1


def test_a_healthy_job_of_ten_thousand_steps_is_never_told_of() -> None:
    draw = random.Random(7)
    norms = [abs(draw.gauss(1.0, 0.3)) * (draw.uniform(5, 60) if draw.random() < 0.01 else 1) for _ in range(10_000)]
    norms[:20] = [30.0 / (step + 1) for step in range(20)]
    assert not wrong(falling(10_000), norms)


def test_a_number_without_a_scale_has_no_spike_but_may_be_nan() -> None:
    draw = random.Random(3)
    policy = [draw.gauss(0.005, 0.01) for _ in range(500)]
    assert not wrong([*policy, *[0.5] * 20])
    assert len(wrong([*policy, *[NAN] * 20])) == 1


def test_a_number_as_large_as_before_is_no_spike() -> None:
    assert not wrong([*[1.0] * 9, 40.0, *[1.0] * 20, *[39.0] * 10])
    assert wrong([*[1.0] * 30, *[39.0] * 10])


def test_a_loss_scaler_may_overflow_often_and_not_for_ever() -> None:
    norms = [1.0] * 30 + [INF] * 8 + [1.0] * 100 + [NAN]
    assert not wrong(falling(139), norms, extra="loss scale: 65536.0")
    assert [one[2] for one in wrong(falling(139), norms)] == ["gradient norm"]  # no scaler is there
    assert len(wrong(falling(60), [1.0] * 30 + [INF] * 30, extra="loss scale: 65536.0")) == 1


def test_steps_that_a_scaler_left_out_are_neither_sound_nor_wrong() -> None:
    watch = NumberWatch(USUAL)
    text = "".join(
        f"iteration {step}/ 90 | lm loss: 2.0E+00 | grad norm: 1.0 | number of skipped iterations: 0 |\n"
        for step in range(30)
    )
    text += "".join(
        f"iteration {step}/ 90 | lm loss: 2.0E+00 | grad norm: inf | number of skipped iterations: 1 |\n"
        for step in range(30, 80)
    )
    assert not [alarm for line in lines(text) for alarm in watch.take(line)]


def test_a_number_that_went_wrong_again_after_it_was_sound_is_told_again() -> None:
    assert len(wrong([*falling(30), *[NAN] * 5, *falling(30), *[NAN] * 5])) == 2


def test_ranks_in_one_log_are_followed_apart() -> None:
    watch, told = NumberWatch(USUAL), []
    for step in range(40):
        for rank in range(4):
            value = NAN if (rank == 2 and step >= 30) or step >= 31 else 2.0
            for line in lines(f"[rank{rank}]: step: {step} loss: {value}"):
                told += watch.take(line)
    assert {(one.rank, one.step) for one in told} == {(0, 31), (1, 31), (2, 30), (3, 31)}
    assert watch.sound_at(29, Quantity.LOSS) == {0, 1, 2, 3} and watch.sound_at(30, Quantity.LOSS) == {0, 1, 3}
    assert watch.sound_at(31, Quantity.LOSS) == set()


def test_who_was_sound_at_a_step_is_known() -> None:
    watch = NumberWatch(USUAL)
    for step in range(40):
        for rank in (0, 1):
            for line in lines(f"[rank{rank}]: step: {step} loss: {NAN if rank and step >= 30 else 2.0}"):
                watch.take(line)
    assert watch.sound_at(30, Quantity.LOSS) == {0} and watch.sound_at(40, Quantity.LOSS) == set()
    assert watch.sound_at(30, Quantity.GRAD_NORM) == set()


def test_what_is_followed_of_one_log_is_bounded() -> None:
    watch = NumberWatch(USUAL)
    for rank in range(10 * MOST):
        for line in lines(f"[rank{rank}]: step: 1 loss: 2.0"):
            watch.take(line)
    assert len(watch._series) == MOST


@pytest.mark.parametrize(
    "name", ["median_steps", "sound_steps", "warm_steps", "spike_steps", "nan_steps", "spike_times"]
)
def test_settings_of_nothing_break_nothing(name: str) -> None:
    watched([*falling(30), *[NAN] * 5, *[90.0] * 9], thresholds=NumberThresholds(**{name: 0}))
