"""What the proof on a GPU says of the cost of agent, recorder and profiler, and that it measures them without a GPU too."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpu.families import overhead
from gpu.families.stepping import block_of
from gpu.kit import NotHere, Stand

ROOT = Path(__file__).resolve().parents[2]


def blocks(*medians: float) -> Sequence[Sequence[float]]:
    return [[median, median, 9.0 * median, median, median] for median in medians]


def test_a_ratio_is_of_the_medians_of_neighbours() -> None:
    compared = overhead.ratio(blocks(0.050, 0.100), blocks(0.051, 0.102))
    assert compared == {"longer": 2.0, "longer at least": 2.0, "longer at most": 2.0, "pairs": 2}


def test_a_cost_is_wrong_only_where_chance_does_not_explain_it() -> None:
    sure = overhead.ratio(blocks(0.050, 0.050, 0.050), blocks(0.0503, 0.0504, 0.0505))
    chance = overhead.ratio(blocks(0.050, 0.050, 0.050), blocks(0.049, 0.060, 0.0505))
    (words,) = overhead.too_slow("the agent", sure)
    assert re.match(r"steps with the agent .*\b0\.8", words)
    assert not list(overhead.too_slow("the agent", chance))
    assert not list(overhead.too_slow("the recorder", sure, overhead.MOST_RECORDER))


def test_a_block_is_a_few_steps_at_least() -> None:
    assert block_of([0.05, 0.04, 9.0, 0.05, 0.05], 1.0) == 20
    assert block_of([2.0], 1.0) == 3


def test_the_profiler_is_left_out_where_it_was_not_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(overhead, "PROFILER", ROOT / "agent/profiler/none.so")
    with pytest.raises(NotHere, match=r"agent/profiler/none.so .*: make profiler"):
        overhead.profiler(Stand(Path(sys.executable), tmp_path, tmp_path, dry=True))
