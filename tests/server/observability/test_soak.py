"""The soak's own judgement: what it calls flat, what not, and that a short one runs against a real server."""

import math
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from scale.soak import trend

SOAK = Path(__file__).parents[3] / "bench/scale/soak.py"


def column(rise: float, noise: float = 0.0, minutes: int = 20) -> list[float]:
    """A column of 200 that rises by so much in half an hour."""
    draw = Random(1)
    return [200.0 + rise * minute / 30.0 + draw.uniform(-noise, noise) for minute in range(minutes)]


@pytest.mark.parametrize(
    ("rise", "noise", "flat"),
    [(0.0, 0.0, True), (0.0, 1.0, True), (8.0, 0.1, True), (20.0, 0.1, False), (20.0, 3.0, False), (60.0, 10.0, False)],
)
def test_a_rise_of_five_percent_in_half_an_hour_is_not_flat(rise: float, noise: float, flat: bool) -> None:
    found = trend(column(rise, noise))
    assert abs(found.rise - rise) <= found.bound + 1e-6
    assert found.flat(2.0) is flat


def test_what_is_small_may_move_and_what_is_too_short_is_not_judged() -> None:
    assert trend([2.0, 3.0, 3.0, 3.0, 3.0, 3.0]).flat(10.0) and not trend([2.0, 3.0, 3.0, 4.0, 4.0, 5.0]).flat(1.0)
    assert trend([1.0, 1.0]).bound == math.inf and not trend([1.0, 1.0]).flat(10.0) and not trend([]).flat(10.0)


@pytest.mark.slow  # a minute of a played cluster
def test_a_short_soak_has_a_cluster_that_lives() -> None:
    call = [sys.executable, str(SOAK), "--for", "70s", "--agents", "80"]
    ended = subprocess.run(call, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 1 and "NOT flat" in ended.stdout, "a minute is too short to say anything"
    assert "hangs" in ended.stdout and "incidents kept" in ended.stdout, ended.stderr
