"""How a job is, from what is known of it: a verdict holds until the job is seen to go on, and green is only what moves."""

from dataclasses import replace

import pytest

from hangdog_models.incident import Incident, IncidentState, SettledCause
from hangdog_models.stall_timeouts import Suspicion
from hangdog_models.views.job_state import Headline, JobCondition, JobFacts, JobState, headline, job_state

NOW = 1_800_000_000.0
MOVES = JobFacts(NOW, ranks=8, moving=8, moving_s=3600.0)
QUIET = JobFacts(NOW, ranks=8)
STOOD = Suspicion(12.0, "ranks 0-7 stand still for 12 s")
CODE = Incident("i1", "llama", NOW - 60, "suspected: ranks 0-7", IncidentState.JUDGED, NOW - 50, kind="software", confidence=0.99)  # fmt: skip
LOOKED = Incident("i2", "llama", NOW - 5, "suspected: ranks 0-7 stand still", IncidentState.CAPTURING, NOW - 5)


@pytest.mark.parametrize(
    ("facts", "condition", "text", "tone"),
    [
        (MOVES, "moving", "moves: 8 of 8 ranks seen to", "good"),
        (replace(QUIET, works=True), "moving", "moves: a rank gets on with something, and the others wait for it", "good"),
        (QUIET, "unknown", "just started or not known yet: neither progress nor a standstill is seen", ""),
        (replace(QUIET, suspicion=STOOD), "suspected", "seems to stand still: ranks 0-7 stand still for 12 s", "warn"),
        (replace(QUIET, incidents=(LOOKED,)), "examined", "is being looked at: ranks 0-7 stand still", "warn"),
        (replace(QUIET, incidents=(CODE,)), "stuck", "stands still: code bug, no machine is at fault", "bad"),
        (replace(QUIET, incidents=(LOOKED, CODE)), "stuck", "stands still: code bug, no machine is at fault, is being looked at again", "bad"),
        (replace(MOVES, lost=["b"]), "lost", "has lost the agent of b", "warn"),
        (replace(QUIET, here=False, lost=["a", "b"]), "lost", "has lost the agents of a, b", "warn"),
        (replace(MOVES, slower="a step takes 2 s"), "slower", "moves more slowly: a step takes 2 s", "warn"),
        (replace(QUIET, here=False), "ended", "has ended", ""),
    ],
)  # fmt: skip
def test_each_state_has_its_word_and_only_what_moves_is_green(
    facts: JobFacts, condition: str, text: str, tone: str
) -> None:
    state = job_state(facts)
    assert (state.condition, state.text, state.tone) == (condition, text, tone)


def test_a_verdict_holds_until_the_job_is_seen_to_go_on_ends_begins_anew_or_people_settle_it() -> None:
    def stuck(facts: JobFacts, **changed: object) -> bool:
        incident = replace(CODE, **changed)  # type: ignore[arg-type]
        return job_state(replace(facts, incidents=(incident,))).condition is JobCondition.STUCK

    assert stuck(QUIET) and stuck(replace(QUIET, moving=8, moving_s=5.0)), "a moment is no progress"
    assert stuck(replace(QUIET, now=NOW + 86400.0)), "it does not age while the job is there"
    assert stuck(MOVES), "its pulse was lively before the verdict, too: who polls in a deadlock looks so"
    assert not stuck(replace(MOVES, moving_s=20.0))
    assert not stuck(QUIET, went_on_s=70.0)
    assert not stuck(QUIET, settled=SettledCause("software", who="ada"))
    assert not stuck(replace(QUIET, began=NOW - 30)) and stuck(replace(QUIET, began=NOW - 3600))
    assert not stuck(QUIET, kind="none") and not stuck(QUIET, kind="slow")
    assert not stuck(QUIET, why="machine check: GPU lost"), "its job may run on"


def test_a_look_that_failed_takes_no_verdict_back_and_stands_for_none() -> None:
    failed = replace(LOOKED, state=IncidentState.FAILED, why="somebody asked", note="nobody answered")
    assert job_state(replace(QUIET, incidents=(failed, CODE))).incident == "i1"
    assert job_state(replace(QUIET, incidents=(failed,))).condition is JobCondition.UNKNOWN
    hangs = job_state(replace(QUIET, incidents=(replace(failed, why=LOOKED.why),)))
    assert hangs.text == "stands still: there is no verdict (nobody answered)"


def test_who_asked_for_a_look_that_decides_nothing_did_not_see_a_standstill() -> None:
    asked = replace(CODE, why="somebody asked", kind="undetermined", confidence=0.0)
    assert job_state(replace(QUIET, incidents=(asked,))).condition is JobCondition.UNKNOWN
    assert job_state(replace(QUIET, incidents=(replace(asked, why=CODE.why),))).text == "stands still: cause unknown"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"kind": "machine", "evict": ("b",)}, "b holds it up"),
        ({"kind": "machine", "evict": ("b", "c")}, "b, c hold it up"),
        ({"kind": "machine"}, "a machine is at fault, none is sure enough to isolate"),
        ({"confidence": 0.4}, "perhaps code bug"),
        ({"kind": "of a newer\x1b version"}, "of a newer\\x1b version"),
    ],
)
def test_a_verdict_reads_as_whoever_is_on_call_says_it(changed: dict[str, object], text: str) -> None:
    incident = replace(CODE, **changed)  # type: ignore[arg-type]
    assert job_state(replace(QUIET, incidents=(incident,))).text == f"stands still: {text}"


def state(condition: JobCondition, text: str = "") -> JobState:
    return JobState(condition, text)


def test_the_headline_is_the_worst_of_all_jobs_and_green_only_when_all_move() -> None:
    moves, unknown = state(JobCondition.MOVING), state(JobCondition.UNKNOWN)
    stuck = state(JobCondition.STUCK, "stands still: code bug, no machine is at fault")
    assert headline([]) == Headline("No job is known", "")
    assert headline([("a", moves)]) == Headline("a moves", "good")
    assert headline([("a", moves), ("b", moves)]) == Headline("All jobs move", "good")
    assert headline([("a", unknown)]) == Headline("a is not known to move yet", "")
    assert headline([("a", moves), ("b", unknown)]) == Headline(
        "No standstill is seen; 1 of 2 jobs are not known to move yet", ""
    )
    assert headline([("a", moves), ("pretrain-7", stuck)]) == Headline(
        "pretrain-7 stands still: code bug, no machine is at fault", "bad"
    )
    assert headline([("b", stuck), ("a", stuck), ("c", stuck)]).text.endswith("fault; 2 more jobs stand still")
