"""The recovery ladder: each rule of its policy, and laws that hold whatever a job does."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.planning.checkpoint import Price
from hangdog_models.recovery.journal import read, written
from hangdog_models.recovery.ladder_state import DAY_S
from hangdog_models.recovery.recovery_history import (
    RESTARTS,
    TESTS,
    Began,
    Entry,
    MachinesChanged,
    OutageOpened,
    RecoveryRung,
    RecoveryStep,
    Steady,
    StepDone,
    Stepped,
    Troubled,
)
from hangdog_models.recovery.recovery_ladder import RecoveryResources, next_step
from hangdog_models.recovery.settings import LadderSettings
from hangdog_models.recovery.trouble import Cause, Trouble

GUILTY = Trouble(Cause.MACHINE, "verdict machine, 97%", (("b",),))
OTHER = Trouble(Cause.MACHINE, "verdict machine, 96%", (("c",),))
THIRD = Trouble(Cause.MACHINE, "verdict machine, 99%", (("d",),))
BUG = Trouble(Cause.SOFTWARE, "verdict software, 98%")
AWAY = Trouble(Cause.DEPENDENCY, "verdict dependency, 90%")
OPEN = Trouble(Cause.UNKNOWN, "the job ended on a with status 1")
SPARES = RecoveryResources(spares=("x", "y", "z"))


class Job:
    """A job whose history is written as a supervisor writes it."""

    def __init__(self, means: RecoveryResources = SPARES) -> None:
        self.means, self.now = means, 1000.0
        self.history: list[Entry] = [OutageOpened(self.now, "run"), Began(self.now, ("a", "b", "c", "d"), "t")]

    def step(self, trouble: Trouble | None) -> RecoveryStep:
        return next_step(self.history, trouble, self.now, self.means)

    def does(self, trouble: Trouble, convicted: Sequence[str] = (), ok: bool = True) -> RecoveryRung:
        """Asks, carries out, and answers what was done."""
        self.now += 60.0
        step = self.step(trouble)
        number = 1 + sum(isinstance(entry, Stepped) for entry in self.history)
        self.history += [Troubled(self.now, self.now, trouble), Stepped(self.now, number, step)]
        self.history.append(StepDone(self.now, number, ok, "", tuple(convicted)))
        if step.act in RESTARTS:
            self.history.append(Began(self.now, (), f"t{number}"))
        return step.act

    def trains(self) -> None:
        self.now += 3600.0
        self.history.append(Steady(self.now))


def test_a_sure_verdict_upon_a_machine_evicts_it_at_once() -> None:
    step = Job().step(GUILTY)
    assert (step.act, step.machines) == (RecoveryRung.EVICT, ("b",))
    assert step.reasons[0] == GUILTY.what and "sure enough" in step.reasons[1]


def test_a_machine_that_is_out_is_not_evicted_again_and_tests_follow() -> None:
    job = Job()
    assert job.does(GUILTY) is RecoveryRung.EVICT
    assert job.does(GUILTY) is RecoveryRung.DIAGNOSE


def test_after_two_evictions_by_verdict_tests_decide() -> None:
    job = Job()
    assert [job.does(trouble) for trouble in (GUILTY, OTHER)] == [RecoveryRung.EVICT] * 2
    assert job.does(THIRD, convicted=["a"]) is RecoveryRung.DIAGNOSE
    step = job.step(THIRD)
    assert (step.act, step.machines) == (RecoveryRung.EVICT, ("a",))
    assert "tests convicted a" in step.reasons


def test_a_crash_without_a_culprit_climbs_every_rung_to_the_human() -> None:
    job = Job()
    acts = [job.does(OPEN) for _ in range(6)]
    assert acts == [
        RecoveryRung.DIAGNOSE,
        RecoveryRung.REATTEMPT,
        RecoveryRung.DIAGNOSE,
        RecoveryRung.ROLLBACK,
        RecoveryRung.REPLAY,
        RecoveryRung.HUMAN,
    ]
    assert job.does(GUILTY) is RecoveryRung.HUMAN  # until somebody comes
    job.history.append(OutageOpened(job.now, "run"))
    assert job.does(GUILTY) is RecoveryRung.EVICT


def test_a_rung_that_nobody_can_climb_is_skipped_and_named() -> None:
    job = Job(replace(SPARES, hands=frozenset({RecoveryRung.EVICT, RecoveryRung.REATTEMPT})))
    step = job.step(OPEN)
    assert (step.act, step.reasons[1]) == (RecoveryRung.REATTEMPT, "nobody can diagnose")


def test_a_software_verdict_is_rolled_back_then_tried_again_and_evicts_nobody() -> None:
    job = Job()
    assert [job.does(BUG) for _ in range(3)] == [RecoveryRung.ROLLBACK, RecoveryRung.REATTEMPT, RecoveryRung.HUMAN]


def test_a_service_that_does_not_answer_is_waited_for() -> None:
    job = Job()
    assert job.step(AWAY).wait_s == 600.0
    assert [job.does(AWAY) for _ in range(6)] == [RecoveryRung.REATTEMPT] * 5 + [RecoveryRung.HUMAN]


def test_without_spares_a_person_is_called_and_told_who_must_go() -> None:
    step = Job(RecoveryResources()).step(GUILTY)
    assert step.act is RecoveryRung.HUMAN
    assert step.reasons[-1].startswith("b ") and "no spares" in step.reasons[-1]


def test_fewer_machines_go_where_spares_or_checkpoint_do_not_allow_all() -> None:
    trouble = replace(GUILTY, choices=(("b", "c"), ("b",)))
    assert Job(RecoveryResources(spares=("x",))).step(trouble).machines == ("b",)
    copies = {"shard 0": ("b", "c"), "shard 1": ("a", "b")}
    assert Job(replace(SPARES, copies=copies)).step(trouble).machines == ("b",)


def test_an_eviction_that_would_lose_the_last_copy_is_diagnosed_first() -> None:
    step = Job(replace(SPARES, copies={"shard 7": ("b",)}, price=Price(600.0, 64))).step(GUILTY)
    assert step.act is RecoveryRung.DIAGNOSE
    assert "shard shard 7" in step.reasons[1]


def test_more_machines_than_one_eviction_may_take_are_diagnosed_first() -> None:
    nine = tuple("abcdefghi")
    step = Job(RecoveryResources(spares=nine)).step(Trouble(Cause.MACHINE, "a switch", (nine,)))
    assert step.act is RecoveryRung.DIAGNOSE
    assert step.reasons[1].startswith("9 machines ") and step.reasons[1].endswith("(8)")


def test_as_many_machines_as_one_eviction_may_take_are_taken() -> None:
    most = tuple(f"m{number}" for number in range(LadderSettings().machines))
    job = Job(replace(SPARES, spares=tuple(f"s{number}" for number in range(len(most)))))
    step = job.step(Trouble(Cause.MACHINE, "a group", (most,)))
    assert (step.act, step.machines) == (RecoveryRung.EVICT, most)


def test_a_test_that_convicts_who_is_out_already_evicts_nobody_again() -> None:
    job = Job()
    assert [job.does(GUILTY), job.does(GUILTY, ("b",))] == [RecoveryRung.EVICT, RecoveryRung.DIAGNOSE]
    assert job.does(GUILTY) is RecoveryRung.REATTEMPT


def test_changes_wait_for_the_next_failure_or_for_a_day() -> None:
    job = Job()
    job.history.append(MachinesChanged(job.now, "faster-loader"))
    assert job.step(None).act is RecoveryRung.WAIT
    assert job.step(GUILTY).changes == ("faster-loader",)
    job.now += 86400.0
    step = job.step(None)
    assert (step.act, step.changes) == (RecoveryRung.UPDATE, ("faster-loader",))
    assert "has waited 24.0 h" in step.reasons[-1]


def test_an_urgent_change_stops_the_job_at_once_and_takes_the_others_along() -> None:
    job = Job()
    job.history += [
        MachinesChanged(job.now, "one"),
        MachinesChanged(job.now, "two", urgent=True),
        MachinesChanged(job.now, "one"),
    ]
    assert (job.step(None).act, job.step(None).changes) == (RecoveryRung.UPDATE, ("one", "two"))


def test_what_came_in_last_is_rolled_back_and_nothing_comes_in_while_the_code_is_suspected() -> None:
    job = Job()
    job.history.append(MachinesChanged(job.now, "faster-loader"))
    assert job.does(GUILTY) is RecoveryRung.EVICT
    job.history.append(MachinesChanged(job.now, "another"))
    assert job.step(BUG) == RecoveryStep(
        RecoveryRung.ROLLBACK, (BUG.what, "faster-loader came in last"), changes=("faster-loader",)
    )
    job.does(BUG)
    assert job.step(OPEN).changes == job.step(None).changes == ()
    job.trains()
    assert job.step(OTHER).changes == ("another",)  # and never the one that was rolled back


def test_a_change_that_could_not_be_merged_does_not_stop_the_job_again() -> None:
    job = Job()
    job.history.append(MachinesChanged(job.now, "broken", urgent=True))
    job.history += [Stepped(job.now, 1, job.step(None)), StepDone(job.now, 1, ok=False)]
    assert job.step(None).act is RecoveryRung.WAIT


def test_copies_on_a_machine_that_was_evicted_before_count_for_nothing() -> None:
    """As the file says it until the job has written its next checkpoint."""
    job = Job(replace(SPARES, copies={"shard 0": ("b", "c"), "shard 2": ("a", "c")}))
    assert job.does(GUILTY) is RecoveryRung.EVICT
    step = job.step(OTHER)
    assert step.act is RecoveryRung.DIAGNOSE
    assert re.search(r"\bevicting c .*\bshard shard 0;", step.reasons[1])
    job.means = replace(job.means, copies={"shard 1": ("b",), "shard 2": ("a", "c")})
    assert job.step(OTHER).act is RecoveryRung.EVICT, "what was lost with b cannot be lost with c"


def test_an_episode_ends_when_the_job_has_trained_and_the_day_counts_on() -> None:
    job = Job()
    for _ in range(LadderSettings().a_day):
        assert job.does(OPEN) in (RecoveryRung.DIAGNOSE, RecoveryRung.REATTEMPT)
        job.now -= 3600.0
        job.trains()
    step = job.step(GUILTY)
    assert step.act is RecoveryRung.HUMAN
    assert step.reasons[-1].startswith(f"{LadderSettings().a_day} steps ") and "24 hours" in step.reasons[-1]
    job.now = DAY_S + next(entry.at for entry in job.history if isinstance(entry, Stepped))
    assert job.step(GUILTY).act is RecoveryRung.EVICT, "the first of them is a day ago"
    job.now -= 1.0
    assert job.step(GUILTY).act is RecoveryRung.HUMAN


MACHINES = st.sampled_from("abcdefgh")
SETS = st.lists(st.lists(MACHINES, min_size=1, max_size=3, unique=True).map(tuple), max_size=3).map(tuple)
TROUBLES = st.builds(Trouble, st.sampled_from(Cause), st.text(max_size=20), SETS)
MEANS = st.builds(
    RecoveryResources,
    spares=st.lists(st.sampled_from("xyz"), unique=True).map(tuple),
    hands=st.frozensets(st.sampled_from(RecoveryRung)),
    copies=st.none() | st.dictionaries(st.text(max_size=3), st.frozensets(MACHINES, min_size=1), max_size=3),
)


def played(means: RecoveryResources, events: Iterable[tuple[Trouble, Sequence[str], bool]]) -> Job:
    job = Job(means)
    for trouble, convicted, ok in events:
        job.does(trouble, convicted, ok)
    return job


EVENTS = st.tuples(TROUBLES, st.lists(MACHINES, max_size=2), st.booleans())
#: More than an episode can have: 5 evictions, 2 tests, 5 attempts, a rollback, a replay.
BOUND = 14


@settings(max_examples=30)
@given(
    MEANS, st.lists(EVENTS.filter(lambda each: each[0].cause is not Cause.NONE), min_size=BOUND + 1, max_size=BOUND + 1)
)
def test_a_person_is_always_reached(
    means: RecoveryResources, events: list[tuple[Trouble, Sequence[str], bool]]
) -> None:
    """Whatever goes wrong next, whatever tests say, whatever cannot be carried out."""
    acts = [entry.step.act for entry in played(means, events).history if isinstance(entry, Stepped)]
    assert RecoveryRung.HUMAN in acts
    assert set(acts[acts.index(RecoveryRung.HUMAN) :]) == {RecoveryRung.HUMAN}


@settings(max_examples=60)
@given(MEANS, st.lists(EVENTS, max_size=8), TROUBLES)
def test_what_holds_of_every_step(
    means: RecoveryResources, events: list[tuple[Trouble, Sequence[str], bool]], trouble: Trouble
) -> None:
    job = played(means, events)
    step = job.step(trouble)
    assert step.reasons
    assert bool(step.machines) is (step.act is RecoveryRung.EVICT)
    evicted = {machine for e in job.history if isinstance(e, Stepped) for machine in e.step.machines}
    assert not evicted.intersection(step.machines)
    assert len(step.machines) <= len(means.spares)
    if trouble.cause in (Cause.SOFTWARE, Cause.DEPENDENCY):
        assert step.act not in {RecoveryRung.EVICT, *TESTS}
    if step.act in {RecoveryRung.ROLLBACK, *TESTS}:
        assert step.act in means.hands
    for holders in (means.copies or {}).values() if step.machines else ():
        assert not set(holders) <= set(step.machines)
    again = [read(written(entry)) for entry in job.history]
    assert again == job.history
    assert next_step(again, trouble, job.now, means) == step


@pytest.mark.parametrize(
    "line",
    ["", "{}", "[]", '{"entry": "stepped", "at": 1}', '{"entry": "steady", "at": true}', "9" * 9999, "[" * 99999],
)
def test_what_is_no_entry_is_refused(line: str) -> None:
    with pytest.raises(UnreadableEvidence):
        read(line)
