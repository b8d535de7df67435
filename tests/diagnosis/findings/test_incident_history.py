"""Earlier incidents of the same kind move the odds of machine and code, are told of, and count for no more than they are worth."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hangdog_models.diagnosis.clustering.incident_families import families
from hangdog_models.diagnosis.clustering.incident_features import of_verdict
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.past_incidents import EarlierIncident, IncidentFeatures, Outcome
from hangdog_models.snapshot import Snapshot
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.reasons import codes, words_of
from support.cases.stories import job, look, snapshot, trace

DAY = 86400.0
WIDE = job(dp=16, per_machine=2)
#: Rank 6 of machine node-3 sleeps in a function of the user's; all others wait.
SCENE = snapshot(*[[*look({"0-5,7-15": "gather"}), trace(6, "user", state="S")]] * 2)
HOST = snapshot(*[[*look({"0-5,7-15": "gather"}), trace(6, "disk")]] * 2)
ELSEWHERE = ("node-1", (2,))
MOVED = ("node-3", (12,))
SAME = ("node-3", (6,))


def judged(scene: Snapshot = SCENE, *past: EarlierIncident) -> Verdict:
    return diagnose(replace(scene, past=families(past)), WIDE)


def like(scene: Snapshot = SCENE) -> IncidentFeatures:
    """The features of this incident as its own verdict shows them."""
    found = of_verdict(judged(scene))
    assert found is not None and found.machine == "node-3"
    return found


def before(
    *where: tuple[str, Sequence[int]], scene: Snapshot = SCENE, outcome: Outcome = Outcome.OPEN
) -> list[EarlierIncident]:
    """Incidents of this kind on these machines, one a day."""
    kind = like(scene)
    return [
        EarlierIncident(f"{at:02x}", at * DAY, replace(kind, machine=machine, ranks=tuple(ranks)), outcome)
        for at, (machine, ranks) in enumerate(where, 1)
    ]


def shares(verdict: Verdict) -> tuple[float, float]:
    return verdict.causes[StallCause.MACHINE], verdict.causes[StallCause.SOFTWARE]


def test_without_a_history_nothing_changes() -> None:
    assert judged(SCENE) == diagnose(SCENE, WIDE)


def test_the_same_place_on_several_machines_is_the_code() -> None:
    (machine, code), verdict = shares(judged()), judged(SCENE, *before(ELSEWHERE, ("node-5", (10,)), ("node-6", (12,))))
    assert verdict.kind is Kind.SOFTWARE and shares(verdict)[0] < machine / 2 and shares(verdict)[1] > code
    told = words_of(verdict.because, "seen-before-elsewhere")
    assert all(one in told for one in ("3 times", "3 days", "3 machines", "(01, 02, 03)"))


def test_a_machine_that_evidence_blames_is_spared_where_the_same_is_everywhere() -> None:
    alone = judged(HOST)
    everywhere = judged(HOST, *before(ELSEWHERE, ("node-5", (10,)), ("node-6", (12,)), scene=HOST))
    assert alone.evict.machines == ("node-3",) and everywhere.evict.machines == ()


def test_the_same_machine_again_with_other_ranks_is_the_machine() -> None:
    verdict = judged(SCENE, *before(MOVED, ("node-3", (13,)), MOVED))
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.MACHINE, ("node-3",))
    told = words_of(verdict.because, "seen-before-here")
    assert all(one in told for one in ("3 times", "3 days", "on node-3 ", "(01, 02, 03)"))


def test_the_same_ranks_of_the_same_machine_tell_nothing() -> None:
    """What only these ranks do (the first one logs, the last stage has the loss) is always on their machine."""
    verdict = judged(SCENE, *before(SAME, SAME, SAME, ("node-3", (7,))))
    assert shares(verdict) == shares(judged())
    assert "seen-before" in codes(verdict.because)


@pytest.mark.parametrize(("where", "outcome"), [(SAME, Outcome.CONVICTED), (SAME, Outcome.CLEARED)])
def test_what_tests_found_counts_more(where: tuple[str, Sequence[int]], outcome: Outcome) -> None:
    once = judged(SCENE, *before(where, outcome=outcome))
    twice_untested = judged(SCENE, *before(*([MOVED, MOVED] if outcome is Outcome.CONVICTED else [])))
    machine, _ = shares(judged())
    if outcome is Outcome.CONVICTED:
        assert shares(once) == shares(twice_untested) > (machine, 0)
    else:
        assert shares(once)[0] < machine


def test_a_fault_that_tests_found_elsewhere_does_not_speak_for_the_code() -> None:
    verdict = judged(SCENE, *before(ELSEWHERE, outcome=Outcome.CONVICTED))
    assert shares(verdict) == shares(judged())


def test_many_count_no_more_than_a_few() -> None:
    few, many = (judged(SCENE, *before(*[MOVED] * times)) for times in (3, 30))
    told = words_of(many.because, "seen-before-here")
    assert shares(few) == shares(many) and "30 times" in told and "30 days" in told


def test_where_it_was_more_often_than_anywhere_else_the_others_speak_for_nothing() -> None:
    """A fault of the code that stops anywhere would not choose one machine; its place may be a common one of hosts at fault."""
    others = [ELSEWHERE, ("node-5", (10,)), ("node-6", (12,))]
    often = judged(SCENE, *before(MOVED, MOVED, *others))
    assert shares(often) == shares(judged(SCENE, *before(MOVED, MOVED)))
    assert shares(judged(SCENE, *before(MOVED, *others)))[0] < shares(judged())[0], "once here is as often as elsewhere"


def test_one_machine_many_times_is_one_machine_for_the_code() -> None:
    assert shares(judged(SCENE, *before(*[ELSEWHERE] * 9))) == shares(judged(SCENE, *before(ELSEWHERE)))


def test_an_incident_of_another_kind_is_a_new_one() -> None:
    other = snapshot(*[[*look({"0-5,7-15": "gather"}), trace(6, "upload", state="S")]] * 2)
    verdict = judged(SCENE, *before(ELSEWHERE, MOVED, MOVED, scene=other))
    assert verdict == judged()


def test_what_speaks_against_a_machine_by_itself_is_another_kind_and_no_fault_of_the_code() -> None:
    """GPUs that fall off the bus stand at one place of the code, on whichever machine."""
    lost = Finding("kernel log", "Xid 79", Impact.CONVICTS, "GPU has fallen off the bus", machine="node-3")
    scene = replace(SCENE, findings=(lost,))
    assert like(scene).evidence == ("Xid 79",) and like().evidence == ()
    alone = judged(scene)
    everywhere = [ELSEWHERE, ("node-5", (10,)), ("node-6", (12,))]
    assert shares(judged(scene, *before(*everywhere, scene=scene))) == shares(alone)
    assert judged(scene, *before(*everywhere)) == alone, "they showed nothing of the kind"
    assert judged(SCENE, *before(*everywhere, scene=scene)) == judged()
    assert alone.evict.machines == ("node-3",)


def test_who_left_no_stack_has_no_family() -> None:
    lost = snapshot(*[[*look({"0-5,7-15": "gather"}), trace(6, "timed out")]] * 2)
    assert of_verdict(diagnose(lost, WIDE)) is None
    assert judged(lost, *before(MOVED, MOVED)) == diagnose(lost, WIDE)
