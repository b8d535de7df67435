"""Steps count when every rank has told of them, and a rank that ends is an error in its own words."""

import json
import subprocess
import sys
import time
from pathlib import Path

from hangdog.demo.pipes import first_line, whole_output
from hangdog.demo.processes import final_line
from hangdog.demo.step_reports import StepReports, TrainingStep
from hangdog_models.errors import OurFault
from support.refused import refused


def printing(*lines: str, then: str = "signal.pause()") -> subprocess.Popen[bytes]:
    code = f"import signal, sys\nfor line in {lines!r}: print(line, flush=True)\n{then}"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


def end(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def told(step: int, loss: float | None, seconds: float) -> str:
    return json.dumps({"step": step, "loss": loss, "seconds": seconds})


def test_a_step_is_complete_when_all_ranks_told_of_it() -> None:
    ahead = printing(told(1, None, 0.5), told(2, None, 0.4))
    behind = printing(told(1, 2.0, 0.75))
    progress = StepReports({0: ahead.stdout, 1: behind.stdout}, str)
    steps: list[TrainingStep] = []
    while len(steps) < 1:
        steps += progress.follow(1.0)
    assert steps == [TrainingStep(1, 2.0, 0.75)]
    assert not progress.stalled()
    end(ahead, behind)


def test_a_rank_that_ends_is_reported_with_its_last_words() -> None:
    rank = printing(then="sys.exit(1)")
    progress = StepReports({3: rank.stdout}, lambda number: f"out of memory on {number}")
    with refused("demo-failed", OurFault, "rank 3", "out of memory on 3"):
        for _ in range(100):
            list(progress.follow(1.0))
    end(rank)


def test_of_ranks_that_fall_together_all_are_heard() -> None:
    ranks = [printing(then="sys.exit(1)") for _ in range(3)]
    alive = printing(told(1, None, 0.5))
    progress = StepReports(
        dict(enumerate(rank.stdout for rank in (*ranks, alive))), lambda number: f"words of {number}"
    )
    with refused("demo-failed", OurFault, *(f"words of {rank}" for rank in range(3))):
        for _ in range(100):
            for rank in ranks:
                rank.wait()
            list(progress.follow(1.0))
    end(*ranks, alive)


def test_what_a_library_logs_at_the_end_is_no_last_word(tmp_path: Path) -> None:
    log = tmp_path / "errors"
    logged = "[rank1]:[W1126 01:07:10.601690504 WorkerServer.cpp:139] [c10d] Server exited\n"
    log.write_text(f"Traceback (most recent call last):\nRuntimeError: no space left\n{logged}\n")
    assert final_line(log) == "RuntimeError: no space left"
    log.write_text(logged)
    assert final_line(log).endswith("Server exited")
    log.write_text("")
    assert final_line(log) == "it said nothing"


def test_the_first_line_comes_without_waiting_for_the_end() -> None:
    process = printing("listening on 127.0.0.1:7", "more")
    assert first_line(process, 30) == "listening on 127.0.0.1:7"
    end(process)


def test_a_process_that_never_ends_is_not_waited_for() -> None:
    process = printing("so far")
    began = time.monotonic()
    assert whole_output(process, 2.0, lambda: None).strip() in ("so far", "")
    assert time.monotonic() - began < 10
    assert process.returncode is not None
    end(process)
