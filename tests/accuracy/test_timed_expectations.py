"""What is expected of a verdict on a timed incident follows from what happened, and from what the evidence can show of it."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from worlds.timed.evidence.bundle import Written
from worlds.timed.evidence.plan import Failure, Plan, plan
from worlds.timed.expected.expectation import Expected, expected, lines
from worlds.timed.expected.visible import Sign, Visible
from worlds.timed.incident import Incident, incident
from worlds.timed.scenarios.kinds import KINDS

#: Of the simulator that measures, not of what it measures.
pytestmark = [pytest.mark.slow, pytest.mark.parallel]

#: Jobs that are simulated in no time, and of which this seed draws small ones.
SMALL, SEED = ("inhouse-gloo", "jax", "lightning", "transformers", "deepspeed"), "c"


def named(family: Callable[[str], bool]) -> list[str]:
    return sorted({kind.name for kind in KINDS if family(kind.family)})


@cache
def made(name: str) -> Incident:
    kind = next(one for one in KINDS if one.name == name)
    job = next((job for job in SMALL if job in kind.jobs), kind.jobs[0])
    found = incident(kind, job, SEED)
    return replace(found, looks=[*found.looks, found.looks[-1]][:2])


def bare(of: Incident) -> Plan:
    """Stacks of all ranks by their machines, and nothing else."""
    drawn = plan(of, Random("any"))
    return replace(
        drawn,
        processes=False,
        recorder=False,
        kernel=False,
        workers=False,
        log=False,
        folders="machines",
        job_file="none",
        stalled=False,
        failures={},
        absent=frozenset(),
    )


def seen(kind: str) -> Visible:
    of = made(kind)
    return Visible(of, Written(bare(of)))


def evicted(of: Expected, visible: Visible) -> set[str]:
    """The machines that may be evicted."""
    layout = visible.incident.layout
    return set(layout.machines).difference(layout.machine(rank) for rank in of.spared)


@pytest.mark.parametrize("kind", named(lambda family: family == "healthy"))
def test_nobody_of_a_healthy_job_may_be_evicted(kind: str) -> None:
    visible = seen(kind)
    found = expected(visible)
    assert "none" in found.verdicts and found.evict_at_most == 0 and not evicted(found, visible)
    assert not found.must and not visible.guilty


@pytest.mark.parametrize("kind", named(lambda family: family != "healthy"))
def test_whoever_is_to_be_found_is_guilty_and_only_guilty_machines_may_go(kind: str) -> None:
    visible = seen(kind)
    found = expected(visible)
    assert {*found.must, *found.some} <= set(visible.guilty)
    assert not found.spared or evicted(found, visible) <= set(visible.incident.scene.machines)


def test_a_stopped_process_is_a_machine_as_soon_as_its_state_is_seen() -> None:
    hidden = seen("stopped")
    shown = Visible(hidden.incident, Written(replace(hidden.written.plan, processes=True)))
    assert "undetermined" in expected(hidden).verdicts
    assert expected(shown).verdicts == ("machine",) and expected(shown).must == list(shown.guilty)
    assert shown.sure == list(shown.guilty) and not hidden.sure


def test_a_machine_that_does_not_answer_shows_by_its_failed_captures() -> None:
    visible = seen("frozen-machine")
    ranks = visible.incident.scene.ranks
    unreachable = replace(visible.written.plan, failures=dict.fromkeys(ranks, Failure.UNREACHABLE))
    visible = Visible(visible.incident, Written(unreachable))
    assert all(visible.has(rank, Sign.FAILURE) for rank in ranks) and expected(visible).verdicts == ("machine",)


def test_a_failed_capture_tells_of_nobody_where_others_fail_too() -> None:
    visible = seen("blocked-in-kernel")
    (guilty,) = visible.guilty
    other = next(rank for rank in visible.incident.layout.ranks if rank != guilty)
    alone = replace(visible.written.plan, failures={guilty: Failure.NOT_STOPPED})
    beside = replace(alone, failures={guilty: Failure.NOT_STOPPED, other: Failure.NO_ANSWER})
    assert Visible(visible.incident, Written(alone)).told == [guilty]
    assert not Visible(visible.incident, Written(beside)).told


def test_a_hung_device_is_asked_for_only_where_something_shows_it() -> None:
    visible = seen("hung-device")
    assert not visible.told and not expected(visible).must and "undetermined" in expected(visible).verdicts
    shows = Written(visible.written.plan, shows=frozenset(visible.incident.scene.machines))
    told = expected(Visible(visible.incident, shows))
    assert told.verdicts == ("machine", "group") and told.must == list(visible.guilty)


def test_a_recorder_that_is_behind_tells_and_one_that_differs_is_code() -> None:
    visible = seen("other-size")
    (guilty,) = visible.guilty
    others = [rank for rank in visible.incident.layout.ranks if rank != guilty]
    same = {1: ("all_reduce 4", "completed")}
    dumped = {"dp0": {rank: {**same, 2: ("all_reduce 8", "started")} for rank in others}}
    dumped["dp0"][guilty] = {**same, 2: ("all_reduce 9", "started")}
    recorded = Visible(visible.incident, Written(visible.written.plan, dumped))
    assert recorded.mismatched(guilty) and recorded.has(guilty, Sign.RECORDER)
    assert expected(recorded).verdicts == ("software",) and expected(recorded).must == [guilty]
    late = {"dp0": {**dumped["dp0"], guilty: dict(same)}}
    behind = Visible(visible.incident, Written(visible.written.plan, late))
    assert behind.has(guilty, Sign.RECORDER) and not behind.mismatched(guilty)


def test_one_look_that_says_nothing_of_how_long_may_be_called_healthy() -> None:
    visible = seen("uneven-batches")
    once = Visible(replace(visible.incident, looks=visible.incident.looks[:1]), visible.written)
    assert "none" in expected(once).verdicts and "none" not in expected(visible).verdicts


def test_expectations_are_written_as_the_corpus_has_them() -> None:
    visible = seen("lock-order")
    written = list(lines(expected(visible)))
    (guilty,) = visible.guilty
    assert written[0] == 'verdict = ["software", "machine"]'
    assert written[1] == f'must_include_ranks = "{guilty}"' and written[-1] == "evict_at_most = 1"
    assert written[2].startswith('must_not_evict = ["rank:')
