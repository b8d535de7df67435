"""How often verdicts were right: against what people and tests settled, with how many cases, and nothing where there are none."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.incident import SettledCause
from hangdog_models.machine_history import MentionKind
from hangdog_models.operations.compute import report
from hangdog_models.operations.evictions import CONVICTED, GUILTY, INNOCENT, PASSED, judged
from hangdog_models.operations.past_events import (
    Came,
    MachineMention,
    MachineTestRecord,
    Naming,
    PastEvents,
    PastIncident,
)
from hangdog_models.operations.verdict_accuracy import PARTS, settled_causes
from hangdog_models.verdict import Kind, StallCause

DAY = 86400.0
CODE = SettledCause("software", (), "", "ada", 900.0)


def on(*machines: str, cause: str = "machine") -> SettledCause:
    return SettledCause(cause, machines, "", "ada", 900.0)


def incident(name: str, kind: str, confidence: float, settled: SettledCause | None = None) -> PastIncident:
    return PastIncident(name, 100.0, kind, judged=120.0, confidence=confidence, settled=settled)


def named(name: str, machine: str, probability: float, kind: MentionKind = MentionKind.SUSPECTED) -> MachineMention:
    return MachineMention(machine, name, 120.0, kind, probability)


PAST = PastEvents(
    incidents=(
        incident("right", "machine", 0.98, on("a")),
        incident("other machine", "machine", 0.92, on("c")),
        incident("code", "machine", 0.72, CODE),
        incident("healthy", "none", 0.94, on(cause="healthy")),
        incident("nobody knew", "undetermined", 0.4, on("d")),
        incident("tested", "machine", 0.99),
        incident("open", "machine", 0.99),
        PastIncident("no verdict", 100.0, failed=True, settled=CODE),
    ),
    namings=(
        Naming("right", "a", 130.0, Came.TAKEN),
        Naming("other machine", "b", 130.0, Came.TAKEN),
        Naming("code", "e", 130.0, Came.DISMISSED),
        Naming("tested", "t", 130.0, Came.TAKEN),
        Naming("open", "o", 130.0, Came.TAKEN),
    ),
    trials=(MachineTestRecord("c1", "tested", "t", 150.0, convicted=True),),
    mentions=(
        named("right", "a", 0.98, MentionKind.CONVICTED),
        named("right", "z", 0.01),
        named("other machine", "b", 0.92, MentionKind.CONVICTED),
        named("other machine", "c", 0.05),
        named("nobody knew", "d", 0.3),
        named("nobody knew", "e", 0.3),
        named("tested", "t", 0.99, MentionKind.CONVICTED),
        named("tested", "u", 1.0, MentionKind.CLEARED),
    ),
)


def figures(past: PastEvents) -> dict[str, tuple[float | None, int]]:
    ours = ("right_", "innocent", "sure_")
    return {one.key: (one.value, one.count) for one in report(past, 0.0, DAY).figures if one.key.startswith(ours)}


def test_each_figure_against_what_incidents_turned_out_to_be() -> None:
    assert figures(PAST) == {
        "right_cause": (
            4 / 6,
            6,
        ),  # not the one of the code, nor the undetermined one; the last two are not settled or judged
        "right_machine": (2 / 4, 4),  # two machines that are as likely are not both guilty
        "innocent": (1 / 3, 3),
        "sure_70": (0.0, 1),
        "sure_90": (1.0, 2),
        "sure_97": (1.0, 2),
    }
    (sure,) = [one for one in report(PAST, 0.0, DAY).figures if one.key == "sure_90"]
    assert "93.0% on average" in sure.definition and sure.title == "right where 90% to 97% sure"


def test_of_what_nobody_settled_there_is_no_figure() -> None:
    assert figures(PastEvents()) == {} == figures(replace(PAST, incidents=PAST.incidents[6:7], trials=()))
    group = incident("g", "group", 0.8, on(cause="group"))
    assert figures(PastEvents((group,))) == {"right_cause": (1.0, 1), "sure_70": (1.0, 1)}, "nobody named a machine"


def test_people_who_settle_an_incident_are_believed_before_tests() -> None:
    taken = Naming("tested", "t", 130.0, Came.TAKEN)
    failed = MachineTestRecord("c1", "tested", "t", 150.0, convicted=True)
    passed = MachineTestRecord("c1", "tested", "t", 150.0, False, 3)
    assert judged(taken, [failed], CODE) == INNOCENT and judged(taken, [passed], on("t")) == GUILTY
    assert judged(taken, [failed], on("s")) == INNOCENT
    assert judged(taken, [failed], on()) == CONVICTED and judged(taken, [passed], on(cause="group")) == PASSED
    assert settled_causes([incident("tested", "machine", 0.9, CODE)], [failed]) == {"tested": CODE}
    assert settled_causes([incident("tested", "machine", 0.9)], [failed])["tested"].machines == ("t",)
    assert settled_causes([], [passed, replace(failed, incident="")]) == {}, "a pass tells no cause"


def test_the_answer_of_people_stands_in_the_tally_only_where_there_is_one() -> None:
    (tally,) = [one for one in report(PAST, 0.0, DAY).tallies if one.key == "rightness"]
    counts = dict(tally.counts)
    assert counts[f"taken, {GUILTY}"] == counts[f"taken, {INNOCENT}"] == counts[f"not taken, {INNOCENT}"] == 1
    assert f"not taken, {GUILTY}" not in counts and tally.total == len(PAST.namings)


SETTLED = st.builds(SettledCause, st.sampled_from([*map(str, StallCause)]), st.just(()), st.just(""), st.just("ada"))
JUDGED = st.builds(
    incident, st.uuids().map(str), st.sampled_from([*map(str, Kind)]), st.floats(0.0, 1.0), st.none() | SETTLED
)


@given(st.lists(JUDGED, max_size=8))
def test_every_sure_verdict_stands_in_one_part_and_its_share_is_one(incidents: list[PastIncident]) -> None:
    found = figures(PastEvents(tuple(incidents)))
    assert all(value is not None and 0.0 <= value <= 1.0 and count for value, count in found.values())
    sure = [
        one
        for one in incidents
        if one.settled is not None and one.kind != Kind.UNDETERMINED and one.confidence >= PARTS[0]
    ]
    assert sum(count for key, (_, count) in found.items() if key.startswith("sure_")) == len(sure)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.UNDETERMINED])
def test_a_verdict_is_right_by_the_cause_of_its_name(kind: Kind) -> None:
    for cause in StallCause:
        past = PastEvents((incident("x", str(kind), 0.8, on(cause=str(cause))),))
        same = str(cause) == str(kind) or (kind is Kind.NONE and cause is StallCause.HEALTHY)
        assert figures(past)["right_cause"] == (float(same), 1)
