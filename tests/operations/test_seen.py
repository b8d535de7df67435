"""What a server saw of jobs, reckoned: stories made by hand, and laws that hold whatever was seen."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hangdog_models.operations.compute import report
from hangdog_models.operations.past_events import PastEvents
from hangdog_models.operations.report import OperationsReport
from hangdog_models.operations.report_json import from_json, to_json
from hangdog_models.operations.session_histories import STEADY_S, UNNAMED, SessionHistory, SessionStall

HOUR = 3600.0
#: It trains for an hour, hangs for ten minutes and is killed, comes back five minutes later and trains for two hours.
KILLED = (
    SessionHistory("llama", 0.0, 4200.0, end=True, stalls=(SessionStall(3600.0, 3620.0),)),
    SessionHistory("llama", 4500.0, 4500.0 + 2 * HOUR),
)


def told(*sessions: SessionHistory, since: float = 0.0, until: float = 1e6) -> OperationsReport:
    return report(PastEvents(sessions=sessions), since, until)


def value(of: OperationsReport, key: str) -> tuple[Any, int]:
    (one,) = [one for one in of.figures if one.key == key]
    return one.value, one.count


def chains(of: OperationsReport) -> dict[str, int]:
    (one,) = [one for one in of.tallies if one.key == "chains"]
    return {label: count for label, count in one.counts if count}


def test_a_job_that_was_killed_while_it_hung_and_came_back() -> None:
    found = told(*KILLED)
    assert value(found, "ettr") == (pytest.approx((11700 - 900) / 11700), 1)
    assert value(found, "mttr") == (880.0, 1)
    assert value(found, "restarts") == (1.0, 1) and chains(found) == {"trains again": 1}
    (job,) = found.training.listed
    assert (job.job, job.watched, job.lost, job.failures, job.restarts) == ("llama", 11700.0, 900.0, 1, 1)
    assert "seen by agents" in found.training.definition


def test_nothing_seen_is_unknown_and_no_perfect_job() -> None:
    found = told()
    assert value(found, "ettr") == (None, 0) and value(found, "mttr") == (None, 0)
    assert value(told(SessionHistory("llama", 0.0, 0.0)), "ettr") == (None, 0)
    assert not found.training.listed


def test_the_jobs_are_read_back_and_a_server_of_before_tells_of_none() -> None:
    document = json.loads(json.dumps(to_json(told(*KILLED))))
    assert document["jobs"]["listed"][0]["ettr"] == round(10800 / 11700, 3)
    assert to_json(from_json(document)) == document
    del document["jobs"]
    assert from_json(document).training.listed == ()


def test_one_that_moves_again_by_itself_is_restarted_by_nobody() -> None:
    found = told(SessionHistory("llama", 0.0, 2 * HOUR, stalls=(SessionStall(3600.0, 3610.0, 3660.0),)))
    assert value(found, "ettr") == (pytest.approx(1 - 60 / 7200), 1) and value(found, "mttr") == (50.0, 1)
    assert not chains(found)


def test_restarts_that_fail_soon_are_one_chain() -> None:
    sessions = [SessionHistory("llama", 1000.0 * number, 1000.0 * number + 400.0, end=True) for number in range(3)]
    found = told(*sessions, SessionHistory("llama", 3000.0, 3000.0 + STEADY_S))
    assert chains(found) == {"trains again": 1} and value(found, "interval") == (1000.0, 2)
    assert chains(told(*sessions)) == {"not decided": 1}, "nobody knows whether it failed or was done"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (KILLED[0], replace(KILLED[1], start=False)),  # it was found running: nobody knows since when
        (replace(KILLED[0], end=False), KILLED[1]),  # nobody knows how long it had lasted
        (KILLED[0], replace(KILLED[1], began=4200.0 + HOUR + 1, until=4200.0 + 3 * HOUR)),  # another experiment
        (KILLED[0], replace(KILLED[1], job="gpt")),
    ],
)
def test_what_is_not_known_to_be_a_restart_costs_nothing(one: SessionHistory, other: SessionHistory) -> None:
    found = told(one, other)
    assert value(found, "mttr") == (None, 0) and not chains(found)
    known = 4200.0 + other.until - other.began
    assert value(found, "ettr")[0] == pytest.approx((known - 600.0) / known)


def test_jobs_that_nobody_named_are_not_taken_for_one_another() -> None:
    found = told(*(replace(one, job=UNNAMED) for one in KILLED))
    assert value(found, "mttr") == (None, 0) and not chains(found)


def test_a_standstill_that_outlasts_its_server_is_one() -> None:
    found = told(
        SessionHistory("llama", 0.0, 1000.0, stalls=(SessionStall(900.0, 910.0),)),
        SessionHistory("llama", 1600.0, 3000.0, start=False, stalls=(SessionStall(900.5, 1610.0, 2000.0),)),
    )
    assert value(found, "ettr") == (pytest.approx(1900 / 3000), 1) and value(found, "mttr") == (1090.0, 1)
    apart = told(
        SessionHistory("llama", 0.0, 1000.0, stalls=(SessionStall(900.0, 910.0),)),
        SessionHistory("llama", 1600.0, 3000.0, start=False, stalls=(SessionStall(1700.0, 1710.0, 2000.0),)),
    )
    assert value(apart, "ettr") == (pytest.approx(2000 / 2400), 1), "what became of the first one, nobody saw"


MOMENTS = st.integers(0, 20_000).map(float)
STILL = st.builds(SessionStall, MOMENTS, MOMENTS, st.none() | MOMENTS)
SESSIONS = st.builds(
    SessionHistory, st.sampled_from(["a", "b", UNNAMED]), MOMENTS, MOMENTS, st.booleans(), st.booleans(),
    st.lists(STILL, max_size=3).map(tuple),
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(SESSIONS, max_size=6), MOMENTS, MOMENTS)
@example(  # which begin and end at once, one after the other, in either order
    [
        SessionHistory("a", 5.0, 5.0, end=True),
        SessionHistory("a", 5.0, 5.0, end=True, stalls=(SessionStall(700.0, 700.0),)),
    ],
    0.0,
    20_000.0,
)
def test_a_share_is_a_share_whatever_clocks_and_servers_say(
    sessions: list[SessionHistory], one: float, other: float
) -> None:
    found = told(*sessions, since=min(one, other), until=max(one, other))
    share, count = value(found, "ettr")
    assert (share is None) == (count == 0) and (share is None or 0.0 <= share <= 1.0)
    assert all(job.share is not None and 0.0 <= job.lost <= job.watched for job in found.training.listed)
    again = told(*sorted(sessions, key=repr, reverse=True), since=min(one, other), until=max(one, other))
    assert again == told(*sorted(sessions, key=repr), since=min(one, other), until=max(one, other))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 600), st.integers(0, 5000)), min_size=1, max_size=4),
    st.data(),
)
def test_a_longer_standstill_never_raises_the_share(lived: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Sessions one after the other: each trains, stands still for a while, goes on, and ends; then there is a pause."""
    which, longer = data.draw(st.integers(0, len(lived) - 1)), data.draw(st.integers(0, 5000))
    shares = []
    for more in (0, longer):
        now, sessions = 0.0, []
        for number, (trains, stands, pause) in enumerate(lived):
            began, stood = now, now + trains
            moved = stood + stands + (more if number == which else 0)
            now = moved + trains
            stills = (SessionStall(stood, min(stood + 10.0, moved), moved),) if moved > stood else ()
            sessions.append(SessionHistory("a", began, now, end=True, stalls=stills))
            now += pause
        shares.append(value(told(*sessions), "ettr")[0])
    before, after = shares
    assert before is not None and after is not None and after <= before + 1e-12
