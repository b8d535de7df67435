"""The command of the benchmark: one simulation an incident, the same figures for every number of processes, a status that tells."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from accuracy import __main__ as command
from accuracy import bounds, others, trial
from accuracy.simulator import make
from accuracy.simulator.make import default_set
from accuracy.trial import Trial, run, select

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "tests" / "recordings" / "frameworks"
TASKS = [(3, 16, "lock"), (5, 16, "size mismatch"), (1, 32, "lock")]


def without_seconds(trials: list[Trial]) -> list[Trial]:
    def still(one: Trial) -> Trial:
        sides = {name: replace(getattr(one, name), seconds=0.0) for name in ("ours", "theirs", "cleaned")}
        return replace(one, **sides)

    return [still(one) for one in trials]


def test_two_processes_find_what_one_finds() -> None:
    done: list[int] = []
    alone = run(TASKS, 1, lambda: done.append(1))
    assert len(done) == 3
    assert {one.seed for one in alone} == {1, 3, 5}
    assert without_seconds(run(TASKS[::-1], 2)) == without_seconds(alone)


def test_an_incident_is_simulated_once_for_all_its_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = [], make.incident

    def counted(seed: int, ranks: int | None = None, fault: str | None = None) -> object:
        asked.append(seed)
        return real(seed, ranks, fault)

    monkeypatch.setattr(make, "incident", counted)
    found = trial.make_and_judge(TASKS[0])
    assert (asked, len(found) > 1) == ([3], True)


def test_what_cannot_be_made_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"incident\(1, 64, 'no such fault'\)"):
        trial.make_and_judge((1, 64, "no such fault"))


def test_the_default_set_is_as_large_as_the_bounds_want_and_names_each_incident_once() -> None:
    tasks = list(default_set())
    assert len(tasks) == len(set(tasks)) >= bounds.INCIDENTS


def test_the_command_writes_json_and_ends_with_1_when_a_bound_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = select(default_set(), "lock", 64)[0][0]
    options = ["--fault", "lock", "--ranks", "64", "--seeds", str(seed), "--jobs", "1", "--format", "json"]
    impossible = bounds.Bound("more than all", ("host",), bounds.STACKS, lambda _: 0.5, 1.1, True)
    for bounded, status in (((), 0), ((impossible,), 1)):
        monkeypatch.setattr(bounds, "BOUNDS", bounded)
        monkeypatch.setattr(bounds, "GUILTY", ())
        assert command.main([*options, "--output", str(tmp_path / "table.json")]) == status
        written = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
        assert written["incidents"] == 1
        assert [bound["met"] for bound in written["bounds"]] == [False] * len(bounded)
    assert "bounds missed: more than all" in capsys.readouterr().err


def test_other_worlds_are_judged_after_the_first_one_and_a_wrong_eviction_there_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for case in ("transformers-sigstop", "jax-lock"):
        shutil.copytree(RECORDINGS / case, tmp_path / "given" / case)
    monkeypatch.setattr(others, "recorded", list)
    monkeypatch.setattr(others, "CORPUS", tmp_path / "nowhere")
    seed = select(default_set(), "lock", 64)[0][0]
    options = ["--fault", "lock", "--ranks", "64", "--seeds", str(seed), "--jobs", "1", "--format", "json"]
    options += ["--output", str(tmp_path / "table.json"), "--world", f"given={tmp_path / 'given'}"]
    assert command.main(options) == 0
    (world,) = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))["worlds"]
    assert (world["name"], world["cases"], world["right"], world["innocent"]) == ("given", 2, 1.0, 0)
    wanted = tmp_path / "given" / "transformers-sigstop" / "expected.toml"
    wanted.write_text(wanted.read_text(encoding="utf-8").replace("evict_at_most = 1", "evict_at_most = 0"))
    assert command.main(options) == 1
    assert "given: evicts an innocent" in capsys.readouterr().err


def test_one_incident_is_shown_with_its_truth_and_both_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--show", "3", "--ranks", "16", "--fault", "lock"]) == 0
    shown = capsys.readouterr().out
    assert "TRUE: lock (own work)" in shown
    assert "\nbecause" in shown
    assert "PEER: evicts" in shown


def test_the_folder_runs_as_a_command_and_nothing_like_it_is_wrong_use() -> None:
    ran = subprocess.run(
        [sys.executable, "bench/accuracy", "--seeds", "999999"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (64, ""), ran.stderr
