"""The report of a server's past: each figure on a past made by hand, and laws that hold whatever happened."""

import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdog_models.machine_history import MentionKind
from hangdog_models.operations import evictions
from hangdog_models.operations.compute import LISTED, report
from hangdog_models.operations.evictions import CONVICTED, DISMISSED, PASSED, SOON_S, UNKNOWN, judged
from hangdog_models.operations.figure_text import duration
from hangdog_models.operations.past_events import (
    Came,
    MachineMention,
    MachineTestRecord,
    Naming,
    PastEvents,
    PastIncident,
)
from hangdog_models.operations.report import OperationsReport
from hangdog_models.operations.report_json import from_json, to_json

DAY = 86400.0
TAKEN = Naming("i1", "a", 130.0, Came.TAKEN, began=100.0, out=190.0)
PAST = PastEvents(
    incidents=(
        PastIncident("i1", 100.0, "machine", stood=88.0, judged=120.0),
        PastIncident("i2", 200.0, "machine", stood=170.0, judged=210.0),
        PastIncident("i3", 300.0, "software", judged=312.0),
        PastIncident("i4", 400.0, failed=True),
        PastIncident("i5", 500.0),
    ),
    namings=(
        TAKEN,
        Naming("i2", "b", 230.0, Came.TAKEN, began=200.0),
        Naming("i2", "c", 230.0, Came.DISMISSED, began=200.0, reason=True),
        Naming("i2", "d", 230.0, Came.LEFT, began=200.0),
    ),
    trials=(
        MachineTestRecord("c1", "i1", "a", 150.0, convicted=True),
        MachineTestRecord("c2", "", "b", 240.0, convicted=False, passed=3),
    ),
    mentions=(
        MachineMention("a", "i1", 120.0, MentionKind.CONVICTED, 0.9),
        MachineMention("a", "c1", 160.0, MentionKind.CONVICTED, 1.0),
        MachineMention("b", "i2", 210.0, MentionKind.CONVICTED, 0.8, 2),
        MachineMention("c", "i2", 210.0, MentionKind.SUSPECTED, 0.8, 2),
        MachineMention("d", "i2", 210.0, MentionKind.CLEARED, 0.0),
    ),
)


def figure(of: OperationsReport, key: str) -> tuple[float | None, int, float | None, float | None]:
    (one,) = [one for one in of.figures if one.key == key]
    return one.value, one.count, one.median, one.longest


def counts(of: OperationsReport, key: str) -> dict[str, int]:
    (one,) = [one for one in of.tallies if one.key == key]
    return dict(one.counts)


def test_every_figure_of_a_past_made_by_hand() -> None:
    told = report(PAST, 0.0, DAY)
    assert figure(told, "mttd") == (21.0, 2, 21.0, 30.0)
    assert figure(told, "verdict") == (14.0, 3, 12.0, 20.0)
    assert figure(told, "isolated") == (90.0, 1, 90.0, 90.0)
    assert figure(told, "concentration") == (1.0, 3, None, None)
    assert [figure(told, key)[:2] for key in ("mttr", "ettr", "retries", "manual")] == [(None, 0)] * 4
    assert counts(told, "incidents") == {"machine": 2, "software": 1, "no verdict: failed": 1, "no verdict yet": 1}
    assert counts(told, "evictions") == {"taken": 2, "given up": 0, "dismissed": 1, "left": 1}
    assert counts(told, "rightness") == {
        f"taken, {CONVICTED}": 1, f"taken, {PASSED}": 1, f"taken, {UNKNOWN}": 0,
        f"not taken, {CONVICTED}": 0, f"not taken, {PASSED}": 0, f"not taken, {DISMISSED}": 1, f"not taken, {UNKNOWN}": 1,
    }  # fmt: skip
    assert [(one.machine, one.convicted, round(one.weight, 3), one.lemon) for one in told.machines.listed] == [
        ("a", 2, 1.9, True), ("b", 1, 0.4, False), ("c", 0, 0.4, False), ("d", 0, 0.0, False),
    ]  # fmt: skip


def test_what_nothing_tells_is_unknown_and_says_why() -> None:
    told = report(PastEvents(), 0.0, DAY)
    assert all(one.value is None and one.unknown for one in told.figures)
    assert not any(one.total for one in told.tallies) and told.machines.named == 0
    partly = {one.key: one.unknown for one in report(PAST, 0.0, DAY).figures}
    assert "leaves out 3 incidents" in partly["mttd"] and "leaves out 1 machine " in partly["isolated"]


@pytest.mark.parametrize(
    ("trials", "came", "reason", "answer"),
    [
        ((), Came.TAKEN, False, UNKNOWN),
        ((), Came.DISMISSED, False, UNKNOWN),
        ((), Came.DISMISSED, True, DISMISSED),
        (
            (MachineTestRecord("c", "i1", "a", 9e9, True),),
            Came.TAKEN,
            False,
            CONVICTED,
        ),  # of the incident: whenever it was
        ((MachineTestRecord("c", "i1", "a", 200.0, True),), Came.DISMISSED, True, CONVICTED),  # tests outweigh a word
        ((MachineTestRecord("c", "i2", "a", 200.0, True),), Came.TAKEN, False, UNKNOWN),  # of another incident
        ((MachineTestRecord("c", "i1", "b", 200.0, True),), Came.TAKEN, False, UNKNOWN),  # another machine
        ((MachineTestRecord("c", "i1", "a", 200.0, False, 3),), Came.TAKEN, False, PASSED),
        ((MachineTestRecord("c", "i1", "a", 200.0, False, 3, 1),), Came.TAKEN, False, UNKNOWN),  # one test stayed open
        ((MachineTestRecord("c", "i1", "a", 200.0, False),), Came.TAKEN, False, UNKNOWN),  # it was not tested at all
        ((MachineTestRecord("c", "", "a", 130.0 + SOON_S, False, 3),), Came.TAKEN, False, PASSED),
        (
            (MachineTestRecord("c", "", "a", 131.0 + SOON_S, False, 3),),
            Came.TAKEN,
            False,
            UNKNOWN,
        ),  # it may be repaired by then
        ((MachineTestRecord("c", "", "a", 129.0, False, 3),), Came.TAKEN, False, UNKNOWN),  # before the incident
        (
            (MachineTestRecord("c", "", "a", 150.0, False, 3), MachineTestRecord("d", "", "a", 160.0, True)),
            Came.TAKEN,
            False,
            CONVICTED,
        ),
    ],
)
def test_right_and_wrong_are_known_only_where_tests_or_a_person_say(
    trials: tuple[MachineTestRecord, ...], came: Came, reason: bool, answer: str
) -> None:
    assert judged(replace(TAKEN, came=came, reason=reason), trials) == answer


NAMES = st.sampled_from(["a", "b", "c"])
MOMENTS = st.integers(0, 400).map(float)
INCIDENTS = st.builds(
    PastIncident, NAMES, MOMENTS, st.sampled_from(["", "machine", "slow"]), st.booleans(), st.none() | MOMENTS, st.none() | MOMENTS
)  # fmt: skip
NAMINGS = st.builds(
    Naming, NAMES, NAMES, MOMENTS, st.sampled_from(Came), st.none() | MOMENTS, st.none() | MOMENTS, st.booleans()
)
TRIALS = st.builds(
    MachineTestRecord, NAMES, NAMES | st.just(""), NAMES, MOMENTS, st.booleans(), st.integers(0, 2), st.integers(0, 2)
)
SAID = st.builds(
    MachineMention,
    NAMES,
    NAMES,
    MOMENTS,
    st.sampled_from(MentionKind),
    st.integers(0, 10).map(lambda n: n / 10),
    st.integers(1, 4),
)
PASTS = st.builds(PastEvents, *(st.lists(one, max_size=6).map(tuple) for one in (INCIDENTS, NAMINGS, TRIALS, SAID)))


@settings(max_examples=40)
@given(PASTS, st.randoms())
def test_the_order_of_the_past_does_not_matter(past: PastEvents, chance: Random) -> None:
    def mixed(rows: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(chance.sample(rows, len(rows)))

    again = PastEvents(mixed(past.incidents), mixed(past.namings), mixed(past.trials), mixed(past.mentions))  # type: ignore[arg-type]
    assert report(again, 0.0, 1000.0) == report(past, 0.0, 1000.0)


@settings(max_examples=40)
@given(PASTS, st.integers(0, 400).map(float))
def test_two_periods_beside_each_other_add_up(past: PastEvents, between: float) -> None:
    whole, first, second = report(past, 0.0, 500.0), report(past, 0.0, between), report(past, between, 500.0)
    for tally, one, other in zip(whole.tallies, first.tallies, second.tallies, strict=True):
        mine, theirs = dict(one.counts), dict(other.counts)
        assert dict(tally.counts) == {key: mine.get(key, 0) + theirs.get(key, 0) for key in dict(tally.counts)}
        assert tally.total == one.total + other.total
    parts, rests = ({one.key: one for one in part.figures} for part in (first, second))
    for figure_ in whole.figures:
        absent = replace(figure_, value=None, count=0)  # of what nobody settled there is no figure
        part, rest = parts.get(figure_.key, absent), rests.get(figure_.key, absent)
        assert figure_.count == part.count + rest.count
        if part.value is not None and rest.value is not None and figure_.median is not None:
            mean = (part.value * part.count + rest.value * rest.count) / figure_.count
            assert figure_.value == pytest.approx(mean)


@settings(max_examples=40)
@given(PASTS)
def test_a_report_is_read_back_as_it_was_written(past: PastEvents) -> None:
    written = json.dumps(to_json(report(past, 0.0, 500.0)))
    assert to_json(from_json(json.loads(written))) == json.loads(written)


@pytest.mark.parametrize("wrong", [{}, {"schema": "hangdog.verdict/1"}, {"schema": "hangdog.report/1", "since": 3}])
def test_what_is_no_report_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        from_json(wrong)


def test_the_list_of_machines_is_bounded_and_tells_how_many_there_are() -> None:
    said = tuple(MachineMention(f"m{number}", "i", 1.0, MentionKind.SUSPECTED, 0.5) for number in range(LISTED + 5))
    told = report(PastEvents(mentions=said), 0.0, DAY).machines
    assert (told.named, len(told.listed)) == (LISTED + 5, LISTED)


def test_one_conviction_weighs_more_than_any_suspicion() -> None:
    said = tuple(MachineMention("a", f"i{number}", 1.0, MentionKind.SUSPECTED, 0.9) for number in range(3))
    told = report(
        PastEvents(mentions=(*said, MachineMention("b", "i9", 1.0, MentionKind.CONVICTED, 0.6))), 0.0, DAY
    ).machines
    assert [(one.machine, round(one.weight, 3)) for one in told.listed] == [("b", 0.6), ("a", 2.7)]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.44, "0.4 s"), (14.4, "14 s"), (119.4, "119 s"), (120.0, "2.0 min"), (7200.0, "2.0 h"), (172800.0, "2.0 d")],
)
def test_a_time_is_told_in_the_largest_unit_of_which_it_has_two(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_all_answers_stand_in_the_tally_even_where_none_is() -> None:
    assert set(evictions.rightness((), (), {}).values()) == {0}
