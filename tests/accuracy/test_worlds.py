"""A world that somebody else made: folders of evidence with what is expected of each verdict."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.verdict import Kind
from support.cases.stories import job, look, twice
from worlds.__main__ import main
from worlds.score import score

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings" / "frameworks"
SHAPE = job(tp=2, dp=2, pp=2)
#: Rank 5 waits for its disk while all others wait for it: its machine, node-2.
VERDICT = diagnose(twice(look({"0-4,6-7": "metrics", "5": "disk"})), SHAPE)
RIGHT: dict[str, Any] = {"verdict": ["machine"], "must_include_ranks": "5", "evict_at_most": 1}


@pytest.mark.parametrize(
    ("want", "right"),
    [
        ({}, True),
        ({"verdict": ["software"]}, False),
        ({"must_include_ranks": "4,5"}, False),
        ({"must_include_ranks": "", "must_include_any_ranks": ["4", "5"]}, True),
        ({"must_include_machines": ["node-2"]}, True),
        ({"must_include_machines": ["node-1"]}, False),
        ({"must_not_evict": ["node-2"]}, False),
        ({"must_not_evict": ["rank:4-5"]}, False),
        ({"must_not_evict": ["rank:0-3"]}, True),
        ({"evict_at_most": 0}, False),
    ],
)
def test_a_verdict_is_right_when_all_that_is_expected_holds(want: dict[str, Any], right: bool) -> None:
    assert VERDICT.kind is Kind.MACHINE and VERDICT.evict.machines == ("node-2",)
    assert score("case-1-loader", RIGHT | want, VERDICT, SHAPE).right is right


def test_the_first_suspect_counts_where_somebody_is_to_be_found() -> None:
    assert score("x-loader", RIGHT, VERDICT, SHAPE).first is True
    assert score("x-loader", RIGHT | {"must_include_ranks": "1"}, VERDICT, SHAPE).first is False
    assert score("x-none", {"verdict": ["none"]}, VERDICT, SHAPE).first is None


def test_a_folder_of_cases_is_judged_and_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(RECORDINGS / "transformers-sigstop", tmp_path / "a1-sigstop")
    assert main([str(tmp_path), "--misses"]) == 0
    assert "sigstop" in capsys.readouterr().out
    assert main([str(tmp_path), "--format", "json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["case"], one["kind"], one["right"], one["first"]) == ("a1-sigstop", "sigstop", True, True)


def test_an_empty_folder_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path)])
    assert ended.value.code == 2
