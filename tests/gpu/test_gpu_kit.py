"""The proof's frame: each part runs once, within the time, and what was measured survives a kill at any point."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu import report
from gpu.kit import Entry, Journal, Measured, NotHere, Outcome, Part, Stand, run

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

BENCH = Path(__file__).parents[2] / "bench"


def stand(folder: Path) -> Stand:
    return Stand(Path(sys.executable), folder, folder / "scratch", dry=True)


def part(name: str, expected_s: float = 1.0, fails: int = 0, why: str = "") -> tuple[Part, list[str]]:
    """A part that fails so often, or cannot run here, and the calls of it."""
    calls: list[str] = []

    def measure(_: Stand) -> Measured:
        calls.append(name)
        if why:
            raise NotHere(why)
        if len(calls) <= fails:
            raise ValueError("it broke off")
        return Measured({"number": len(calls)}, ["too many"] if name == "a/wrong" else [])

    return Part(name, expected_s, measure), calls


def slice_of(folder: Path, *parts: Part, seconds: float = 100.0) -> tuple[tuple[str, ...], Journal]:
    journal = Journal(folder / "journal.jsonl")
    left = run(parts, stand(folder), journal, time.monotonic() + seconds, lambda line: None)
    return left, journal


def test_what_does_not_fit_is_left_for_the_next_slice_and_nothing_runs_twice(tmp_path: Path) -> None:
    (short, short_calls), (long, long_calls) = part("a/short"), part("a/long", expected_s=200.0)
    left, _ = slice_of(tmp_path, long, short)
    assert (left, short_calls, long_calls) == (("a/long",), ["a/short"], [])
    left, journal = slice_of(tmp_path, long, short, seconds=1000.0)
    assert (left, short_calls, long_calls) == ((), ["a/short"], ["a/long"])
    assert [entry.part for entry in journal.entries] == ["a/short", "a/long"]


def test_a_part_that_breaks_off_is_tried_once_more_and_the_others_run_all_the_same(tmp_path: Path) -> None:
    (broken, calls), (sound, _), (absent, _) = (
        part("a/broken", fails=9),
        part("a/sound"),
        part("a/absent", why="no GPU"),
    )
    left, journal = slice_of(tmp_path, broken, sound, absent)
    assert left == ("a/broken",)
    left, journal = slice_of(tmp_path, broken, sound, absent)
    assert left == () and len(calls) == 2
    outcomes = {name: entry.outcome for name, entry in journal.latest().items()}
    assert outcomes == {"a/broken": Outcome.FAILED, "a/sound": Outcome.DONE, "a/absent": Outcome.NOT_HERE}
    assert "it broke off" in (tmp_path / "failures.txt").read_text()


def test_a_line_that_a_kill_cut_short_is_no_part_and_spoils_none(tmp_path: Path) -> None:
    (one, _), (other, calls) = part("a/one"), part("a/other")
    slice_of(tmp_path, one, other)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    left, _ = slice_of(tmp_path, one, other)
    assert left == () and calls == ["a/other", "a/other"]
    assert set(Journal(path).latest()) == {"a/one", "a/other"}


def test_the_report_tells_figures_and_what_is_wrong(tmp_path: Path) -> None:
    (wrong, _), (absent, _) = part("a/wrong"), part("b/absent", why="there is no | here")
    _, journal = slice_of(tmp_path, wrong, absent)
    journal.write(Entry("a/long", Outcome.DONE, 1.0, {"words": "w" * 99, "ms": {"median": 0.12345678}}))
    report.write(tmp_path, journal)
    text = (tmp_path / "report.md").read_text()
    assert re.search(r"\b2 of 3 .*\b1 findings\b", text)
    assert "- a/wrong: too many" in text and re.search(r"- b/absent: not here: .* \| here", text)
    assert "| ms |  | median 0.1235 |" in text and f"- words: {'w' * 99}" in text


def test_a_kill_loses_the_part_under_way_and_no_other(tmp_path: Path) -> None:
    """The real command, killed while its second part runs, then resumed."""
    command = [sys.executable, str(BENCH / "gpu"), "--dry", "--out", str(tmp_path), "--only", "machine", "--only"]
    killed = subprocess.Popen([*command, "nvml"], stdout=subprocess.DEVNULL, start_new_session=True)
    journal, until = tmp_path / "journal.jsonl", time.monotonic() + 60.0
    while not journal.exists():
        assert time.monotonic() < until and killed.poll() is None
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert set(Journal(journal).latest()) == {"machine/versions"}
    resumed = subprocess.run([*command, "machine"], check=False, capture_output=True, text=True, timeout=60.0)
    assert resumed.returncode == 0 and "machine/versions" not in resumed.stdout
