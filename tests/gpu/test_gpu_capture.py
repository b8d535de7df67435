"""What the proof on a GPU says of reading a trainer inside CUDA calls, and that it exercises all of it without a GPU."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu.families.looks import Looks, Taken, figures_of, not_permitted, wrong_of
from gpu.families.standing import CallFailed, StandingTrainer
from gpu.kit import Stand
from gpu.trainers import page
from gpu.trainers.turns import NAMES, At, Turns, number
from hangdog_models.stack import Frame, Missing, Reason, Thread
from overhead.stage import stage

ROOT = Path(__file__).resolve().parents[2]
PID = 7
READ = (
    Thread("MainThread", PID, (Frame("train", "/job/train.py", 12), Frame("synchronize", "/torch/cuda.py", 3)), True),
)
FAILED = Missing(Reason.TOOL_FAILED, "py-spy: Failed to get stack trace")


def looks(failed: int = 0, held: int = 0, alone: float = 0.001) -> Looks:
    found = Looks(alone=[alone] * 30)
    found.nonblocking = [
        Taken(0.04, 0.2 if at < held else 0.002, FAILED if at >= 30 - failed else READ) for at in range(30)
    ]
    return found


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (looks(), ""),
        (looks(failed=1), ""),
        (looks(failed=2), "2 of 30 reads without stopping it failed: capture tool failed: py-spy"),
        (looks(held=1), ""),
        (looks(held=2), "its loop stood still for 200.0 ms while it was read without being stopped, 1.0 ms alone"),
        (looks(held=2, alone=0.18), ""),
    ],
)
def test_one_odd_read_is_chance_and_two_are_wrong(found: Looks, told: str) -> None:
    assert " ".join(wrong_of(found, pauses=True)).startswith(told)
    assert bool(told) == bool(list(wrong_of(found, pauses=True)))


def test_pauses_are_not_judged_where_others_work() -> None:
    assert not list(wrong_of(looks(held=9), pauses=False))


def test_figures_name_the_place_the_libraries_and_the_failures() -> None:
    found = looks(failed=1)
    native = [Frame(f"f{at}", "", 0, "/usr/lib/libcuda.so.550.1") for at in range(8)] + [
        Frame("poll", "", 0, "libc.so.6")
    ]
    found.native = [Taken(0.9, 0.5, (Thread("MainThread", PID, (READ[0].frames[0], *native)),))]
    figures = figures_of(found, PID)
    assert figures["nonblocking"] == "29 of 30"
    assert figures["top"] == {"train (train.py:12) > synchronize (cuda.py:3)": 29}
    assert figures["active"] == 29
    assert figures["libraries"] == ["libcuda.so.550.1"]
    assert figures["native frames"][-2:] == ["f7 (libcuda.so.550.1)", "poll (libc.so.6)"]
    assert len(figures["native frames"]) == 6
    assert (figures["native ms"], figures["native gap ms"]) == ([900.0], [500.0])
    assert figures["failures"] == {str(FAILED): 1}
    json.dumps(figures)


def test_a_call_that_was_never_reached_has_figures_too() -> None:
    assert figures_of(Looks(), PID)["nonblocking"] == "0 of 0"
    assert not not_permitted(Looks())


def test_the_longest_gap_between_two_turns_is_seen_from_outside(tmp_path: Path) -> None:
    ours, order = page.make(tmp_path / "page", len(At)), number(NAMES[1])
    theirs = page.open_page(tmp_path / "page")
    turns = Turns(theirs, order)
    ours[At.ORDER] = order
    turns.begin()
    assert ours[At.STANDS] == order
    theirs[At.LAST] = time.perf_counter() - 5.0
    assert turns.go_on()
    assert 5.0 <= ours[At.LONGEST] < 60.0
    longest = ours[At.LONGEST]
    assert turns.go_on() and ours[At.LONGEST] == longest and ours[At.TURNS] == 2
    ours[At.ORDER] = 0.0
    assert not turns.go_on()


def test_the_proof_itself_loads_no_torch() -> None:
    code = "import sys, gpu.families.capture, gpu.families.overhead; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT / "bench", check=False, timeout=60).returncode == 0


@pytest.mark.slow
def test_a_trainer_that_dies_inside_a_call_is_told_and_replaced(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the trainers need PyTorch")
    with stage() as here:
        trainer = StandingTrainer(here, Stand(Path(sys.executable), tmp_path, tmp_path, dry=True))
        trainer.enter("synchronize")
        assert not trainer.harm()
        os.kill(trainer.pid, signal.SIGSTOP)
        wait_until(lambda: "in state T" in trainer.harm())
        os.kill(trainer.pid, signal.SIGKILL)
        wait_until(lambda: "status -9" in trainer.harm())
        with pytest.raises(CallFailed, match="not leave"):
            trainer.leave()
        trainer.again()
        trainer.enter("launches")
        trainer.check()
        trainer.page[At.STANDS] = -1.0
        with pytest.raises(CallFailed, match="failed in it"):
            trainer.check()
        trainer.leave()
        assert not trainer.harm()


def wait_until(met: Callable[[], bool]) -> None:
    until = time.monotonic() + 10.0
    while not met():
        assert time.monotonic() < until
        time.sleep(0.01)
