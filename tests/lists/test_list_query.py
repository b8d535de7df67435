"""What is asked of a list stands in its address, and comes back from it the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import WrongUse
from hangdog_models.incident import Incident, IncidentResponse
from hangdog_models.lists.incident_status import IncidentStatus, status_of
from hangdog_models.lists.list_kinds import ACTIONS, INCIDENTS, JOBS, LISTS, MACHINES
from hangdog_models.lists.list_page import ListEntry, page_of
from hangdog_models.lists.list_query import ListQuery, parameters, query_of
from hangdog_server.store.actions import ActionState
from support.refused import refused


def asked(text: str) -> dict[str, list[str]]:
    from urllib.parse import parse_qs

    return parse_qs(text.removeprefix("?"))


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), max_size=50), st.sets(st.sampled_from(MACHINES.states)),
    st.sampled_from(["", "name", "-weight"]), st.integers(1, 1000), st.integers(1, 99),
)  # fmt: skip
def test_a_query_is_the_same_after_it_stood_in_an_address(
    name: str, states: set[str], sort: str, limit: int, page: int
) -> None:
    query = ListQuery(MACHINES, name, tuple(sorted(states)), name, sort, limit, page)
    assert query_of(MACHINES, asked(parameters(query, 50)), 50, 1000) == query


@pytest.mark.parametrize(
    ("text", "code", "value"),
    [
        ("?state=broken", "unknown-choice", "'broken'"),
        ("?sort=colour", "unknown-choice", "'colour'"),
        ("?limit=0", "not-a-number", "'0'"),
        ("?limit=-1", "not-a-number", "'-1'"),
        ("?page=1e3", "not-a-number", "'1e3'"),
        ("?page=99999999", "not-a-number", "page"),
        (f"?search={'x' * 201}", "too-long", "200"),
        ("?search=a+b+c+d+e+f+g+h+i", "too-many", "8"),
    ],
)
def test_what_a_list_does_not_know_is_refused_with_what_it_does(text: str, code: str, value: str) -> None:
    with refused(code, WrongUse, value):
        query_of(MACHINES, asked(text), 50, 1000)


def test_states_come_one_by_one_or_with_commas_and_a_limit_has_a_bound() -> None:
    query = query_of(MACHINES, asked("?state=lost,silent&state=lost&limit=5000"), 50, 1000)
    assert (query.states, query.limit) == (("lost", "silent"), 1000)


def test_every_state_of_an_act_can_be_asked_for() -> None:
    assert set(ACTIONS.states) == set(map(str, ActionState))
    assert all(len(kind.states) == len(set(kind.states)) for kind in LISTS)


NAMES = [f"gpu-{number}" for number in range(7)]


def page(text: str) -> tuple[list[str], str, dict[str, int]]:
    states = {"gpu-1": ("stuck",), "gpu-3": ("stuck",), "gpu-5": ("moving",)}
    entries = [ListEntry(name, f"{name} of llama", states.get(name, ("lost",))) for name in NAMES]
    found = page_of(entries, query_of(JOBS, asked(text), 3, 10))
    return list(found.rows), found.summary, {state: count for state, count in found.counts.items() if count}


def test_a_page_says_which_lines_it_holds_of_how_many() -> None:
    everything = {"stuck": 2, "moving": 1, "lost": 4}
    assert page("") == (NAMES[:3], "1 to 3 of 7 jobs", everything)
    assert page("?page=3") == (NAMES[6:], "7 to 7 of 7 jobs", everything)
    assert page("?page=4") == ([], "page 4 is empty: 7 jobs are on 3 pages", everything)
    assert page("?sort=-name&limit=2")[0] == ["gpu-6", "gpu-5"]
    assert page("?state=stuck") == (["gpu-1", "gpu-3"], "2 jobs of 7 known", everything)
    assert page("?search=LLAMA+5") == (["gpu-5"], "1 job of 7 known", {"moving": 1})
    assert page("?search=llama+zz") == ([], "none of 7 jobs", {})
    assert page("?search=gpu-5&state=stuck") == ([], "none of 7 jobs", {"moving": 1})


@pytest.mark.parametrize(
    ("incident", "status"),
    [
        (Incident("a", "j", 1.0), IncidentStatus.UNDER_WAY),
        (Incident("a", "j", 1.0, state="judged"), IncidentStatus.OPEN),
        (Incident("a", "j", 1.0, state="failed"), IncidentStatus.FAILED),
        (Incident("a", "j", 1.0, state="judged", response=IncidentResponse(acknowledged_by="ada")), IncidentStatus.ACKNOWLEDGED),
        (Incident("a", "j", 1.0, state="judged", went_on_s=3.0, response=IncidentResponse(acknowledged_by="ada")), IncidentStatus.WENT_ON),
        (Incident("a", "j", 1.0, state="judged", went_on_s=3.0, response=IncidentResponse("dismissed")), IncidentStatus.DISMISSED),
        (Incident("a", "j", 1.0, state="judged", response=IncidentResponse("resolved")), IncidentStatus.RESOLVED),
    ],
)  # fmt: skip
def test_what_people_decided_goes_before_what_was_seen(incident: Incident, status: IncidentStatus) -> None:
    assert status_of(incident) is status and str(status) in INCIDENTS.states
