"""Level 2 with real gloo between processes that stand for devices: damaged and slow transfers, and one that never answers."""

import re

import pytest

from hangdog_agent.machine_tests.level import LevelOutcome, MachineConviction, PartKind
from hangdog_agent.machine_tests.levels.inside_machine import Inside
from support.fakes import ladder
from support.fakes.ladder import ON_CPU, SMALL, failed, play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(ladder.PATIENCE_S)]

LINK = (MachineConviction(PartKind.LINK, ("cpu:0", "cpu:2")), MachineConviction(PartKind.MACHINE, ()))


def level(fault: str = "", processes: int = 4) -> Inside:
    return Inside(ladder.engine(fault, '"name": "cpu:2"'), ON_CPU, SMALL, processes)


def test_one_wrong_bit_on_the_way_convicts_the_link_and_with_it_the_machine() -> None:
    results = play(level("damaged transfer"))
    assert failed(results) == {"integrity": LINK}
    (wrong,) = [one for one in results if one.outcome is LevelOutcome.FAIL]
    (line,) = wrong.evidence
    assert re.match(r"cpu:0 with cpu:2: 4 .*\bcpu:2 to cpu:0\b.* 7$", line), line
    assert [(one.test, one.outcome) for one in results] == [
        ("integrity", LevelOutcome.FAIL),
        ("bandwidth", LevelOutcome.PASS),
    ]


def test_a_link_with_a_tenth_of_the_bandwidth_is_slow() -> None:
    assert failed(play(level("slow transfer"))) == {"bandwidth": LINK}


def test_one_that_never_answers_is_named_and_nobody_is_convicted() -> None:
    results = play(level("stopped in transfer", processes=3), 20.0)
    assert not failed(results)
    assert re.match(r"cpu:2 .*\b20 s\b.*\bstate T\b", results[-1].message)


def test_one_device_has_nobody_to_exchange_data_with() -> None:
    assert "takes two" in level(processes=1).supported()
