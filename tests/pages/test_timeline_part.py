"""The timeline of a page: a picture in which marks never hide each other, and beside it the same as a list."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.views.timeline import NOTHING, Event, EventKind, IncidentTimeline
from hangdog_server.web.timeline_part import APART, EVENTS, TICKS, timeline_part

NOON = 1_800_000_000.0


def line(*after: float, since: float | None = None, until: float | None = None) -> IncidentTimeline:
    return IncidentTimeline(tuple(Event(NOON + one, EventKind.ACT, f"<b>{one}</b>") for one in after), since, until, 8)


def marks(page: str) -> list[tuple[float, str]]:
    return [(float(x), label) for x, label in re.findall(r'<svg x="([\d.]+)%".*?<text y="4">([\d-]+)<', page)]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_marks_keep_apart_and_each_event_has_one(after: list[float]) -> None:
    page = timeline_part(line(*sorted(after)), NOON + 1e6)
    found = marks(page)
    assert all(later - one >= APART - 0.01 for (one, _), (later, _) in pairwise(found))
    numbered = [
        number for _, label in found for number in range(int(label.split("-")[0]), int(label.split("-")[-1]) + 1)
    ]
    assert numbered == list(range(1, len(after) + 1))
    assert all(0 <= x <= 100 for x, _ in found)


@pytest.mark.parametrize("span", [1, 59, 600, 7200, 90_000, 3e6])
def test_the_clock_has_a_few_round_moments_and_says_its_zone(span: float) -> None:
    page = timeline_part(line(0, span), NOON + span)
    ticks = re.findall(r'<text x="[\d.]+%" y="68">([^<]+)<', page)
    assert 1 <= len(ticks) <= TICKS + 1 and "all times UTC" in page


def test_it_grows_while_the_job_stands_and_is_still_afterwards() -> None:
    page = timeline_part(line(0, 60, since=NOON), NOON + 120)
    assert f'data-grows="{NOON:.0f} {NOON + 120:.0f}"' in page
    assert f'data-lost="{NOON}" data-ranks="8">0.3<' in page
    over = timeline_part(line(0, 60, since=NOON, until=NOON + 60), NOON + 120)
    assert "data-grows" not in over and "data-lost" not in over and " 1 min: 8 ranks" in over and "so far" not in over


def test_words_of_others_are_escaped_and_very_many_are_counted() -> None:
    page = timeline_part(line(*range(EVENTS + 5)), NOON)
    assert "<b>1</b>" not in page and "&lt;b&gt;1&lt;/b&gt;" in page
    assert "5 events not listed" in page
    assert timeline_part(NOTHING, NOON) == ""
