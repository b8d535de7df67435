"""A flight record that was written before it was asked counts while the job cannot have got on since."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Snapshot
from hangdog_models.stack import ProcessState
from hangdog_models.topology import Topology
from hangdog_models.verdict import Verdict
from support.cases.stories import first, job, look, snapshot

FOUR: Topology = job(dp=4, per_machine=1)
WORLD = tuple(map(Rank, range(4)))
#: After it a note says why.
NOT_COUNTED = " not count: "


def records(*ages: int, behind: int = 2, at: int = 7) -> tuple[RankCounters, ...]:
    """One rank has not entered the collective that the others are in."""
    return tuple(
        RankCounters(
            Rank(rank), {"0": at - 1 if rank == behind else at}, {"0": at - 1}, (), {"0": WORLD}, {}, age_s=age
        )
        for rank, age in enumerate(ages)
    )


def judged(counters: Sequence[RankCounters], stalled_s: float | None, of: Snapshot | None = None) -> Verdict:
    """A job of which nothing but the records is known, unless it was looked at."""
    return diagnose(replace(of or snapshot(), job=Job("story", stalled_s=stalled_s), counters=tuple(counters)), FOUR)


def notes(verdict: Verdict) -> tuple[str, ...]:
    return verdict.evidence.notes


def test_a_record_of_the_standstill_counts_and_says_how_old_it_is() -> None:
    verdict = judged(records(25, 25, 25, 25), 7.0)
    assert first(verdict) == (2,)
    (note,) = notes(verdict)
    assert "ranks 0-3 " in note and "25 s" in note and NOT_COUNTED not in note


def test_it_counts_as_one_that_was_asked_for() -> None:
    kept, fresh = judged(records(25, 25, 25, 25), 600.0), judged(records(0, 0, 0, 0), 600.0)
    assert (kept.suspects, kept.evict, kept.causes) == (fresh.suspects, fresh.evict, fresh.causes)
    assert notes(fresh) == ()


@pytest.mark.parametrize("stalled_s", [None, 7.0])
def test_what_was_written_before_the_standstill_is_history(stalled_s: float | None) -> None:
    verdict = judged(records(90, 90, 90, 90), stalled_s)
    assert all(suspect.ranks != (2,) for suspect in verdict.suspects)
    assert verdict.evict.machines == ()
    (note,) = notes(verdict)
    assert "ranks 0-3 " in note and "90 s" in note and "may have " in note.partition(NOT_COUNTED)[2]


def test_a_job_that_counts_steps_since_has_got_on() -> None:
    before, after = (
        [
            structs.replace(one, state=ProcessState(1000 + one.rank, "S", steps=steps))
            for one in look({"0-3": "metrics"})
        ]
        for steps in (10, 11)
    )
    verdict = judged(records(5, 5, 5, 5), 7.0, snapshot(before, after))
    assert "has got on" in notes(verdict)[0].partition(NOT_COUNTED)[2]


def test_a_rank_that_others_overtook_was_not_behind_but_asked_too_late() -> None:
    """Three answer now, and have completed what the fourth one wrote its record before: it is one without a record."""
    old = records(25, 25, 25, 25, at=5)[2]
    now = [one for one in records(0, 0, 0, 0, behind=9) if one.rank != 2]
    verdict = judged([*now, old], 30.0)
    without = judged(now, 30.0)
    assert (verdict.suspects, verdict.evict, verdict.causes) == (without.suspects, without.evict, without.causes)
    (note,) = notes(verdict)
    assert "rank 2 " in note and "25 s" in note and "another rank " in note.partition(NOT_COUNTED)[2]
