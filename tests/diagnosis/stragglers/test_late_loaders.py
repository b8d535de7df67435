"""A rank whose own data is late, step after step: its job is slow, it is named, and no machine goes for it."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.stragglers.lateness import moments
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import ProcessTrace
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind
from support.cases.reasons import codes
from support.cases.stories import job, trace

FOUR, ONE_MACHINE = job(dp=4, per_machine=1), job(dp=4, per_machine=4)


def at(rank: int, place: str, number: int, steps: int | None) -> ProcessTrace:
    """What a look shows; a loader that gets on is woken and uses a little of the processor."""
    one = trace(rank, place, state="S")
    assert one.state is not None
    ran = {"cpu_s": 1.0 + number * 0.2, "wakes": 100 * number} if place == "loader" else {"cpu_s": 1.0, "wakes": 5}
    return structs.replace(one, state=structs.replace(one.state, steps=steps, **ran))


def looks(late: int, count: int, stepping: bool) -> Snapshot:
    def seen(number: int) -> Sequence[ProcessTrace]:
        steps = number if stepping else None
        return [at(rank, "loader" if rank == late else "backward", number, steps) for rank in range(4)]

    return Snapshot(Job("slow"), tuple(Round(number, tuple(seen(number))) for number in range(count)), 2.0)


@pytest.mark.parametrize("late", [1, 3])
@pytest.mark.parametrize("topology", [FOUR, ONE_MACHINE], ids=["four machines", "one"])
@pytest.mark.parametrize("stepping", [True, False])
def test_who_waits_for_its_own_data_in_ten_looks_makes_the_job_slow(
    late: int, topology: Topology, stepping: bool
) -> None:
    """Ignite, accelerate, mmengine and Composer, with one rank's dataset asleep for two seconds a batch."""
    verdict = diagnose(looks(late, 10, stepping), topology)
    assert (verdict.kind, verdict.evict.machines) == (Kind.SLOW, ())
    assert verdict.suspects[0].ranks == (late,)
    if stepping:
        assert "waits-for-its-data" in codes(verdict.because)


def test_two_looks_at_a_loader_that_gets_on_may_be_the_start_of_an_epoch() -> None:
    assert diagnose(looks(1, 2, False), FOUR).kind is Kind.NONE


def test_equal_looks_of_other_steps_are_other_moments() -> None:
    same: list[Look] = [{}] * 4
    assert [len(moments(same, FOUR, stepped)) for stepped in ((), (True, False, True), (True, True, True))] == [1, 3, 4]
