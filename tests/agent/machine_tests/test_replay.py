"""Level 5 with real processes: the job's own command is done, crashes or hangs, and the ranks keep their sizes."""

import re
import signal
import sys
import threading
import time

import pytest

from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind
from hangdog_agent.machine_tests.levels.replay import Replay
from hangdog_agent.machine_tests.run_members import LINGER_S
from support.fakes import targets
from support.fakes.ladder import ON_CPU, SMALL

pytestmark = pytest.mark.slow  # real processes that hang until their deadline

#: Says who it is on stderr, which only a failure shows.
SAYS = (
    "import os, sys; names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT');"
    "print(*(os.environ[name] for name in names), file=sys.stderr); "
)
GROUP = Group("10.0.0.1:4000", 1, 2)
ALONE = Group()


def played(program: str, group: Group = ALONE, processes: int = 2, deadline_s: float = 20.0) -> tuple[LevelResult, ...]:
    environ = {"TORCHELASTIC_RUN_ID": "left over"}
    level = Replay(ON_CPU, SMALL, group, (sys.executable, "-I", "-S", "-c", program), processes, environ=environ)
    assert level.supported() == ""
    return level.run(deadline_s, threading.Event())


def test_a_command_that_is_done_passes_however_much_it_writes() -> None:
    results = played("print('step ' * 2_000_000)")
    assert [(one.test, one.outcome) for one in results] == [
        ("rank 0", LevelOutcome.PASS),
        ("rank 1", LevelOutcome.PASS),
    ]


def test_each_rank_is_told_its_place_in_the_group() -> None:
    results = played(SAYS + "sys.exit(3)", GROUP, processes=4)
    assert [one.evidence for one in results] == [(f"{4 + at} {at} 8 4 10.0.0.1 4000",) for at in range(4)]


def test_a_crash_fails_the_group_and_the_others_are_not_waited_for() -> None:
    began = time.monotonic()
    program = "import os, time; os.environ['RANK'] == '1' and os.kill(os.getpid(), 11); time.sleep(600)"
    waited, crashed = played(program, deadline_s=60.0)
    assert time.monotonic() - began < LINGER_S + 15
    assert (waited.outcome, waited.convicts) == (LevelOutcome.INCONCLUSIVE, ())
    assert crashed.outcome is LevelOutcome.FAIL and re.match(r"crashes: rank 1 .*\bSIGSEGV$", crashed.message)
    assert crashed.convicts == (MachineConviction(PartKind.GROUP, ("this machine",)),)


@pytest.mark.parametrize("state", ["T", "S"])
def test_a_hang_fails_the_group_of_machines_and_evicts_nobody(state: str) -> None:
    stop = f"os.kill(os.getpid(), {signal.SIGSTOP:d})" if state == "T" else "time.sleep(600)"
    results = played(f"import os, time; {stop}", GROUP, processes=1, deadline_s=1.0)
    (hung,) = results
    assert (hung.outcome, hung.convicts) == (
        LevelOutcome.FAIL,
        (MachineConviction(PartKind.GROUP, ("member 0", "member 1")),),
    )
    assert re.match(rf"hangs: rank 1 .*\b1 s, in state {state}", hung.message)


def test_what_its_ranks_started_is_ended_too() -> None:
    # as torchrun does: workers in sessions of their own
    program = "import subprocess, sys; subprocess.Popen(['sleep', '77777'], start_new_session=True)"
    results = played(program, processes=1)
    (left,) = results[1:]
    assert "left behind" in left.message and left.message.endswith(": 1 process")
    assert not [pid for pid in targets.proc.pids() if "77777" in targets.proc.arguments(pid)]


def test_a_command_that_is_not_there_fails_nobody() -> None:
    level = Replay(ON_CPU, SMALL, Group(), ("/no/such/trainer",), environ={})
    (result,) = level.run(10.0, threading.Event())
    assert result.outcome is LevelOutcome.INCONCLUSIVE
    assert result.message.startswith("rank 0: not started") and "No such file" in result.message


def test_without_a_command_there_is_nothing_to_replay() -> None:
    assert Replay(ON_CPU, SMALL, Group(), ()).supported()
    assert "HOST:PORT" in Replay(ON_CPU, SMALL, Group("nowhere", 0, 2), ("true",)).supported()
