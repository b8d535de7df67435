"""The program that hangdog brings for replays, with real processes on the CPU: sound groups pass, others fail or hang."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hangdog.demo.conductor import free_port
from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind
from hangdog_agent.machine_tests.levels.replay import Replay
from hangdog_agent.machine_tests.torch_engine import Probe
from support.fakes.ladder import ON_CPU, PATIENCE_S, SMALL, engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE_S)]

PROGRAM = "group_training"


def replayed(*faults: str, processes: int = 1, deadline_s: float = 120.0) -> list[tuple[LevelResult, ...]]:
    """What each machine of a group finds; `faults` has one for each, "" for a sound one."""
    meet = f"127.0.0.1:{free_port()}"

    def one(member: int) -> tuple[LevelResult, ...]:
        group, own = Group(meet, member, len(faults)), engine(faults[member], PROGRAM)
        level = Replay(ON_CPU, SMALL, group, (), processes, environ=own.environ, engine=own)
        assert level.supported() == ""
        return level.run(deadline_s, threading.Event())

    with ThreadPoolExecutor(len(faults)) as pool:
        return list(pool.map(one, range(len(faults))))


def test_a_sound_group_passes() -> None:
    found = replayed("", "", processes=2)
    assert [[one.outcome for one in each] for each in found] == [[LevelOutcome.PASS] * 2] * 2, found
    assert [one.test for each in found for one in each] == ["rank 0", "rank 1", "rank 2", "rank 3"]


def test_a_machine_that_computes_other_bits_fails_its_group_and_no_machine_is_named() -> None:
    found = replayed("", "", "gradient")
    failed = [one for each in found for one in each if one.outcome is LevelOutcome.FAIL]
    (one,) = failed
    assert re.search(r"\bstep 0 of dense: gradient .*\brank 2\b", one.message)
    assert one.convicts == (MachineConviction(PartKind.GROUP, ("member 0", "member 1", "member 2")),)


def test_a_machine_that_never_gets_on_hangs_its_group() -> None:
    found = replayed("", "loops", deadline_s=40.0)
    assert all(one.outcome is LevelOutcome.FAIL for each in found for one in each), found
    assert "hangs: rank 1 " in found[1][0].message


def test_a_machine_that_crashes_fails_its_group() -> None:
    found = replayed("", "dies")
    assert re.match(r"crashes: rank 1 .*\bSIGSEGV\b", found[1][0].message)


def test_where_devices_are_not_known_nothing_is_replayed() -> None:
    level = Replay(Probe(why="no torch"), SMALL, Group(), ("/bin/true",), engine=engine())
    assert level.supported() == "no torch"
