"""What happened around an incident stands in order on one clock, and what it cost is counted while the job stands still."""

from dataclasses import replace

import pytest

from hangdog_models.incident import CRASHED_WHY, EarlierVerdict, Incident, IncidentState, SettledCause
from hangdog_models.views.postmortem import markdown
from hangdog_models.views.timeline import NOTHING, Event, EventKind, impact, span, timeline
from support.cases.stalled import judged, stalled

NOON = 1_800_000_000.0
#: Suspected 40 s after its last progress, looked at twice, judged, isolated by a person, and moving again.
INCIDENT = Incident(
    "0a", "llama", NOON, "suspected: nothing moves", IncidentState.JUDGED, NOON + 50, kind="machine", confidence=0.97,
    earlier=(EarlierVerdict(1, NOON + 20, "undetermined", 0.4),), went_on_s=640.0,
)  # fmt: skip
ACTS = (
    Event(NOON + 300, EventKind.APPROVAL, "b: alice approved to isolate it"),
    Event(NOON + 310, EventKind.ACT, "b is out of use"),
)


def test_everything_stands_in_order_from_the_last_progress_to_the_next() -> None:
    line = timeline(INCIDENT, NOON - 40, 1024, ACTS)
    assert [(one.at - NOON, one.kind) for one in line.events] == [
        (-40, "last progress"), (0, "suspicion"), (20, "verdict"), (50, "verdict"), (300, "approval"), (310, "act"),
        (600, "moves again"),
    ]  # fmt: skip
    assert "look 2: machine, 97% sure" in [one.text for one in line.events]
    assert not line.stands and line.stood_s(NOON + 9999) == 640


def test_what_it_costs_grows_while_the_job_stands() -> None:
    under_way = replace(INCIDENT, state=IncidentState.CAPTURING, kind="", went_on_s=0.0, changed=NOON + 5)
    line = timeline(under_way, NOON - 40, 1024)
    said = impact(line, NOON + 50)
    assert line.stands and "1 min 30 s so far" in said and "1024 ranks" in said and "25.6 GPU hours" in said
    assert line.gpu_hours(NOON + 140) == 2 * line.gpu_hours(NOON + 50)  # type: ignore[operator]
    over = timeline(INCIDENT, NOON - 40, 8)
    said = impact(over, NOON + 9999)
    assert "10 min 40 s" in said and "8 ranks" in said and "1.4 GPU hours" in said and "so far" not in said


@pytest.mark.parametrize("other", [{"kind": "none"}, {"kind": "slow"}, {"why": f"{CRASHED_WHY} rank 3 died"}])
def test_a_job_that_moves_or_is_gone_costs_nobody_a_wait(other: dict[str, str]) -> None:
    line = timeline(replace(INCIDENT, **other), NOON - 40, 1024)  # type: ignore[arg-type]
    assert line.since is None and impact(line, NOON) == "" and line.events


def test_where_nobody_saw_since_when_nothing_is_made_up() -> None:
    line = timeline(replace(INCIDENT, why=""), None, 1024)
    assert (line.since, line.until, impact(line, NOON)) == (None, None, "")
    assert line.events[0].kind is EventKind.LOOK and "somebody asked" in line.events[0].text
    assert timeline(INCIDENT, NOON - 40, 0).gpu_hours(NOON) is None


def test_what_people_said_and_why_there_is_no_verdict_stand_there_too() -> None:
    failed = replace(
        INCIDENT, state=IncidentState.FAILED, kind="", note="its disk is full", settled=SettledCause("software", who="ada", at=NOON + 900)
    )  # fmt: skip
    *_, look, end = timeline(failed, None, 0).events
    assert (look.kind, look.at) == (EventKind.LOOK, NOON + 50) and look.text.startswith("look 2: ")
    assert look.text.endswith(": its disk is full")
    assert end.kind is EventKind.SETTLED and "ada" in end.text and end.text.endswith(": software")


def test_a_post_mortem_tells_what_it_cost_and_what_was_done_when() -> None:
    verdict, _ = judged(*stalled(8, 2, 2, 2))
    line = timeline(INCIDENT, NOON - 40, 8, ACTS)
    text = markdown(verdict, line, NOON + 9999)
    assert f"## Impact\n\n{impact(line, NOON + 9999)}\n" in text
    assert f"- 2027-01-15 08:05:00 UTC, approval: {ACTS[0].text}\n" in text
    assert text.index("last progress") < text.index("suspicion") < text.index("moves again") < text.index("## Why")
    assert "## Impact" not in markdown(verdict, NOTHING)


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "59 min 59 s"), (11_400, "3 h 10 min"), (187_200, "2 d 4 h")]
)  # fmt: skip
def test_a_span_is_said_in_two_units(seconds: float, said: str) -> None:
    assert span(seconds) == said
