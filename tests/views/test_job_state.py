"""How a job is, from what is known of it: a verdict holds until the job is seen to go on, and green is only what moves."""

from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.incident import Incident, IncidentState, SettledCause
from hangdog_models.stall_timeouts import Suspicion
from hangdog_models.views.job_state import JobCondition, JobFacts, JobState, headline, job_state
from support.cases.goldens import differing

NOW = 1_800_000_000.0
MOVES = JobFacts(NOW, ranks=8, moving=8, moving_s=3600.0)
QUIET = JobFacts(NOW, ranks=8)
STOOD = Suspicion(12.0, "ranks 0-7 stand still for 12 s")
CODE = Incident("i1", "llama", NOW - 60, "suspected: ranks 0-7", IncidentState.JUDGED, NOW - 50, kind="software", confidence=0.99)  # fmt: skip
LOOKED = Incident("i2", "llama", NOW - 5, "suspected: ranks 0-7 stand still", IncidentState.CAPTURING, NOW - 5)


FAILED = replace(LOOKED, state=IncidentState.FAILED, note="nobody answered")


def with_code(**changed: object) -> JobFacts:
    """A job that stands still by a verdict like `CODE`, but for that."""
    return replace(QUIET, incidents=(replace(CODE, **changed),))  # type: ignore[arg-type]


#: What is known of a job, by what is special about it.
STORIES = {
    "moves": MOVES,
    "one works": replace(QUIET, works=True),
    "nothing is seen": QUIET,
    "suspected": replace(QUIET, suspicion=STOOD),
    "looked at": replace(QUIET, incidents=(LOOKED,)),
    "a code bug": replace(QUIET, incidents=(CODE,)),
    "a code bug, and looked at": replace(QUIET, incidents=(LOOKED, CODE)),
    "perhaps a code bug": with_code(confidence=0.4),
    "one machine": with_code(kind="machine", evict=("b",)),
    "two machines": with_code(kind="machine", evict=("b", "c")),
    "some machine": with_code(kind="machine"),
    "of a newer version": with_code(kind="of a newer\x1b version"),
    "undetermined": with_code(kind="undetermined", confidence=0.0),
    "no verdict": replace(QUIET, incidents=(FAILED,)),
    "an agent is gone": replace(MOVES, lost=["b"]),
    "agents are gone": replace(QUIET, here=False, lost=["a", "b"]),
    "slower": replace(MOVES, slower="a step takes 2 s"),
    "ended": replace(QUIET, here=False),
}
STUCK = JobState(JobCondition.STUCK, "stands still: code bug, no machine is at fault")
MOVING, UNKNOWN = JobState(JobCondition.MOVING, ""), JobState(JobCondition.UNKNOWN, "")
#: Jobs and how they are, and how all of them look.
ALL_JOBS: list[tuple[list[tuple[str, JobState]], str]] = [
    ([], ""),
    ([("a", MOVING)], "good"),
    ([("a", MOVING), ("b", MOVING)], "good"),
    ([("a", UNKNOWN)], ""),
    ([("a", MOVING), ("b", UNKNOWN)], ""),
    ([("a", MOVING), ("pretrain-7", STUCK)], "bad"),
    ([("b", STUCK), ("a", STUCK), ("c", STUCK)], "bad"),
]


def test_what_is_said_of_a_job_and_of_all_jobs_is_the_golden_text() -> None:
    told = [f"{name}: the job {job_state(facts).text}" for name, facts in STORIES.items()]
    told += [headline(jobs).text for jobs, _ in ALL_JOBS]
    assert not differing(Path(__file__).parent / "golden" / "job_state.txt", "\n".join(told) + "\n")


@pytest.mark.parametrize(
    ("story", "condition", "tone", "values"),
    [
        ("moves", "moving", "good", ["8 of 8 ranks"]),
        ("one works", "moving", "good", []),
        ("nothing is seen", "unknown", "", []),
        ("suspected", "suspected", "warn", [STOOD.why]),
        ("looked at", "examined", "warn", ["ranks 0-7 stand still"]),
        ("a code bug", "stuck", "bad", ["code bug"]),
        ("a code bug, and looked at", "stuck", "bad", ["code bug"]),
        ("perhaps a code bug", "stuck", "bad", ["perhaps code bug"]),
        ("one machine", "stuck", "bad", [": b "]),
        ("two machines", "stuck", "bad", [": b, c "]),
        ("some machine", "stuck", "bad", ["machine"]),
        ("of a newer version", "stuck", "bad", ["newer\\x1b version"]),
        ("undetermined", "stuck", "bad", ["unknown"]),
        ("no verdict", "stuck", "bad", [FAILED.note]),
        ("an agent is gone", "lost", "warn", [" b"]),
        ("agents are gone", "lost", "warn", [" a, b"]),
        ("slower", "slower", "warn", ["a step takes 2 s"]),
        ("ended", "ended", "", []),
    ],
)
def test_each_state_has_its_word_and_only_what_moves_is_green(
    story: str, condition: str, tone: str, values: list[str]
) -> None:
    state = job_state(STORIES[story])
    assert (state.condition, state.tone) == (condition, tone)
    assert all(value in state.text for value in values), state.text


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
    failed = replace(FAILED, why="somebody asked")
    assert job_state(replace(QUIET, incidents=(failed, CODE))).incident == "i1"
    assert job_state(replace(QUIET, incidents=(failed,))).condition is JobCondition.UNKNOWN
    assert job_state(STORIES["no verdict"]).condition is JobCondition.STUCK, "somebody saw that it hangs"


def test_who_asked_for_a_look_that_decides_nothing_did_not_see_a_standstill() -> None:
    asked = replace(CODE, why="somebody asked", kind="undetermined", confidence=0.0)
    assert job_state(replace(QUIET, incidents=(asked,))).condition is JobCondition.UNKNOWN
    assert job_state(STORIES["undetermined"]).condition is JobCondition.STUCK, "and here somebody did"


def test_the_headline_is_the_worst_of_all_jobs_and_green_only_when_all_move() -> None:
    assert [headline(jobs).tone for jobs, _ in ALL_JOBS] == [tone for _, tone in ALL_JOBS]
    worst = [headline(jobs).text for jobs, tone in ALL_JOBS if tone == "bad"]
    assert worst[0] == f"pretrain-7 {STUCK.text}" and worst[1].startswith(f"a {STUCK.text}; 2 more jobs ")
    (unknown,) = [headline(jobs).text for jobs, tone in ALL_JOBS if not tone and len(jobs) == 2]
    assert "1 of 2 jobs" in unknown
