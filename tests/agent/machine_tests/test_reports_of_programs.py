"""What programs report is read as from a sick machine: anything may stand in it, and none of it may raise or convict at random."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import LevelOutcome, MachineConviction, PartKind
from hangdog_agent.machine_tests.levels import alignment, single_device
from hangdog_agent.machine_tests.levels.exchange import arrived, gathered, rates
from hangdog_agent.machine_tests.levels.peer_comparison import beside
from hangdog_agent.machine_tests.members import Ended, MemberEnd
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.torch_engine import Engine, Report, cleaned, read
from hangdog_models.planning.alignment import GoldenAnswer

NAMES = ["memory", "gemm", "count", "wrong", "wanted", "was", "word", "digests", "digest", "times", "kinds", "parts", "items",
         "kind", "odd", "repetitions", "key", "from", "to", "seconds", "bytes", "gather", "rows", "host wavers"]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=20,
)


def ended(stdout: str = "", status: int = 0) -> Ended:
    return Ended("cuda:0", MemberEnd.ITSELF, status, stdout=stdout)


def gemm(**more: Any) -> Report:
    sound = {
        "type": "float32",
        "regime": "exact",
        "repetitions": 21,
        "kinds": 1,
        "digests": [{"digest": "aa", "times": 21}],
    }
    return Report(ended(), {"gemm": [sound | more]})


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_no_report_raises(found: dict[str, Any]) -> None:
    report = Report(ended(), found)
    assert all(one.message for one in single_device.judged(report))
    assert all(one.message for one in alignment._alone("cuda:0", report))
    alignment._answers({"cuda:0": report})
    beside(1, [answer for answer in [single_device._answer(report)] if answer], [], {}, 1)
    pairs = (
        [one for one in found.get("parts", []) if isinstance(one, dict)] if isinstance(found.get("parts"), list) else []
    )
    rates(list(arrived(pairs, ["a", "b"])))
    list(gathered({"a": found}, ["a", "b"]))


@pytest.mark.parametrize(
    ("more", "outcome", "whom"),
    [
        ({}, LevelOutcome.PASS, ()),
        ({"digests": []}, LevelOutcome.INCONCLUSIVE, ()),
        ({"kinds": 2, "digests": [{"digest": "aa", "times": 20}]}, LevelOutcome.INCONCLUSIVE, ()),
        (
            {"kinds": 2, "digests": [{"digest": "aa", "times": 19}]},
            LevelOutcome.FAIL,
            (MachineConviction(PartKind.DEVICE, ("cuda:0",)),),
        ),
        (
            {"wrong": [{"digest": "aa", "rows": [3]}]},
            LevelOutcome.FAIL,
            (MachineConviction(PartKind.DEVICE, ("cuda:0",)),),
        ),
        (
            {"wrong": [{"rows": [3]}], "host wavers": True},
            LevelOutcome.FAIL,
            (MachineConviction(PartKind.MACHINE, ()),),
        ),
    ],
)
def test_one_odd_product_is_not_enough_two_are_and_a_checked_one_is(
    more: dict[str, Any], outcome: LevelOutcome, whom: tuple[MachineConviction, ...]
) -> None:
    (result,) = single_device.judged(gemm(**more))
    assert (result.outcome, result.convicts) == (outcome, whom)


def test_of_two_devices_that_differ_nobody_is_convicted_and_of_three_only_one_that_differs_twice() -> None:
    right, wrong = (GoldenAnswer(name, "k", {"dense output": mark}) for name, mark in (("cpu:0", "a"), ("cpu:1", "b")))
    third = GoldenAnswer("cpu:2", "k", right.digests)
    (open_,) = beside(4, [right, wrong], [], {}, 4)
    assert open_.outcome is LevelOutcome.INCONCLUSIVE and "who is right" in open_.message
    (once,) = beside(4, [right, wrong, third], [GoldenAnswer("cpu:1", "k", right.digests)], {}, 4)
    assert once.outcome is LevelOutcome.INCONCLUSIVE and "not confirmed" in once.message
    (twice,) = beside(4, [right, wrong, third], [wrong], {}, 4)
    assert (twice.outcome, twice.convicts) == (LevelOutcome.FAIL, (MachineConviction(PartKind.DEVICE, ("cpu:1",)),))
    (alone,) = beside(4, [right], [], {}, 4)
    assert alone.outcome is LevelOutcome.PASS and alone.digests == right.digests, "others may compare"


def test_a_program_that_failed_has_no_result_whatever_it_said_before() -> None:
    said = '{"at": "start"}\nnoise\n{"at": 7}\n[1]\n{"found": {"gemm": []}}\n'
    assert read(ended(said)).found == {"gemm": []}
    broken = read(ended(said + '{"at": "the end \\u001b[31m"}', status=1))
    assert (broken.found, broken.at, broken.step) == ({}, "the end \\x1b[31m", 2)
    (result,) = single_device.judged(broken)
    assert result.outcome is LevelOutcome.INCONCLUSIVE


def test_a_test_does_not_see_what_a_launcher_or_a_user_told_others() -> None:
    mixed = {"RANK": "7", "TORCHELASTIC_RUN_ID": "x", "HANGDOG_TOKEN": "secret", "LD_LIBRARY_PATH": "/opt"}
    assert cleaned(mixed) == {"LD_LIBRARY_PATH": "/opt"}


def test_a_program_of_ours_runs_under_any_python_without_what_lies_beside_us() -> None:
    """And without what lies in the folder where it is started: a training job has modules of its own."""
    engine = Engine(sys.executable, {})
    member = engine.member("report_line", {}, "x")
    code = member.command[2].replace("runpy.run_module", "print(sys.path, file=sys.stderr); runpy.run_module")
    (one,) = run([type(member)("x", (*member.command[:2], code, *member.command[3:]), member.environ)], 20.0).members
    assert one.well, one.words
    listed = json.loads(one.stderr.strip().replace("'", '"'))
    assert member.command[3] not in listed[:1] and "" not in listed


def test_the_interface_on_the_way_to_the_meeting_point() -> None:
    assert Group("127.0.0.1:4000", 0, 2).interface() == "lo"
    assert Group("[::1]:4000", 0, 2).host == "::1"
    assert Group("no.such.host.invalid:4000", 0, 2).interface() == ""
    assert [Group(meet, 0, 2).wrong() == "" for meet in ("a:1", "a:0", "a:70000", "a", ":1", "")] == [True] + [
        False
    ] * 5
    assert Group("a:1", 2, 2).wrong() and Group("a:1", 0, 1).wrong()
