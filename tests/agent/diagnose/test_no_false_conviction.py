"""Two hundred clean runs of each level, on a machine that has other work too: none of them may convict anybody."""

import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import ladder
from hangdog_agent.diagnose.alignment import Alignment
from hangdog_agent.diagnose.between import Between
from hangdog_agent.diagnose.device import OneDevice
from hangdog_agent.diagnose.group import Group
from hangdog_agent.diagnose.inside import Inside
from hangdog_agent.diagnose.level import Outcome, Result
from hangdog_agent.diagnose.replay import Replay
from ladder import ON_CPU, play

RUNS = 200
SMALL = replace(ladder.SMALL, alignment_repetitions=4, alignment_width_cpu=32)


def one_device() -> tuple[Result, ...]:
    """Three at once, so that their rates are compared."""
    return play(OneDevice(ladder.engine(), ON_CPU, SMALL, 3))


def inside() -> tuple[Result, ...]:
    return play(Inside(ladder.engine(), ON_CPU, SMALL, 3))


def between() -> tuple[Result, ...]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = f"127.0.0.1:{free.getsockname()[1]}"
    levels = [Between(ladder.engine(), ON_CPU, SMALL, Group(meet, at, 3)) for at in range(3)]
    with ThreadPoolExecutor(3) as pool:
        return sum(pool.map(lambda level: level.run(100.0, threading.Event()), levels), ())


def alignment() -> tuple[Result, ...]:
    return play(Alignment(ladder.engine(), ON_CPU, SMALL, 3))


def replay() -> tuple[Result, ...]:
    return play(Replay(ON_CPU, SMALL, Group(), (sys.executable, "-I", "-S", "-c", "print('done')"), 3))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("clean", [one_device, inside, between, alignment, replay])
def test_clean_runs_convict_nobody(clean: Callable[[], tuple[Result, ...]]) -> None:
    open_ = 0
    for turn in range(RUNS):
        results = clean()
        assert not [one for one in results if one.outcome is Outcome.FAIL], (turn, results)
        open_ += any(one.outcome is Outcome.INCONCLUSIVE for one in results)
    print(f"{clean.__name__}: {RUNS} clean runs, {open_} of them with a test that came to no end")
