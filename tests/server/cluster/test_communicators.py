"""Communicators over all machines: who is behind where nothing moves, what is kept, and what is forgotten."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hangdog_models.errors import WrongUse
from hangdog_models.progress.communicator_window import (
    RESTS_S,
    CommunicatorChanges,
    CommunicatorState,
    CommunicatorWindow,
    StragglerRanks,
    joined,
)
from hangdog_models.ranks import Rank
from hangdog_proto.codec.communicator_report import MOST_COMMUNICATORS
from hangdog_server.cluster import communicators
from hangdog_server.cluster.communicators import Communicators, JobCommunicators, put_together
from hangdog_server.cluster.job_states import FRESH_S, JobStates
from hangdog_server.cluster.stalls import StallTracker
from support.servers.cast import NOON


def window(*ranks: int, number: int = 7, **more: object) -> CommunicatorWindow:
    here = tuple(map(Rank, ranks))
    moving = CommunicatorWindow(number, "world", 4, here, 2.0, 100, 101, here[:1], 0.0, 0.1, "AllReduce")
    return replace(moving, **more)  # type: ignore[arg-type]


def stopped(*ranks: int, at: int, age_s: float | None = 30.0, number: int = 7) -> CommunicatorWindow:
    """One in which nothing has moved for half a minute, all ranks here at one order."""
    here = tuple(map(Rank, ranks))
    return window(*ranks, lowest=at, highest=at, behind=here, idle_s=30.0, age_s=age_s, rate=0.0, number=number)


def changes(*windows: CommunicatorWindow, gone: tuple[int, ...] = (), left_out: int = 0) -> CommunicatorChanges:
    return CommunicatorChanges(windows, frozenset(gone), left_out)


def now_of(kept: Communicators, job: str, machines: Iterable[str], now: float) -> JobCommunicators:
    return put_together(kept.reported(job, machines), now)


def test_who_is_behind_is_found_over_all_machines() -> None:
    here = [("a", stopped(0, 1, at=371)), ("b", stopped(2, at=370, age_s=None)), ("c", stopped(3, at=371, age_s=40.0))]
    (one,) = joined(here)
    assert (one.state, one.lowest, one.highest) == (CommunicatorState.WAITS, 370, 371)
    assert one.behind == (StragglerRanks("b", (Rank(2),)),)
    assert (one.seen, one.unseen, one.machines, one.age_s, one.operation, one.oldest) == (
        4,
        0,
        3,
        40.0,
        "AllReduce",
        "c",
    )


def test_where_something_moves_nobody_is_behind_for_machines_tell_at_different_moments() -> None:
    (one,) = joined([("a", window(0, 1)), ("b", stopped(2, 3, at=40))])
    assert (one.state, one.lowest, one.highest, one.behind) == (CommunicatorState.MOVES, None, None, ())


def test_where_all_are_at_one_operation_or_cannot_be_compared_nobody_is_behind() -> None:
    (alike,) = joined([("a", stopped(0, 1, at=9)), ("b", stopped(2, at=9))])
    assert (alike.lowest, alike.highest, alike.behind, alike.unseen) == (9, 9, (), 1)
    unknown = replace(stopped(2, 3, at=9), lowest=None, highest=None, behind=())
    (one,) = joined([("a", stopped(0, 1, at=12)), ("b", unknown)])
    assert (one.state, one.lowest, one.behind) == (CommunicatorState.WAITS, None, ())


def test_those_that_wait_come_first_the_longest_wait_before_others() -> None:
    rests = stopped(0, at=3, age_s=None, number=1)
    posted = window(0, number=2, age_s=600.0)
    waits = [stopped(0, at=3, number=3), stopped(0, at=3, age_s=90.0, number=4)]
    found = joined([("a", one) for one in (posted, rests, *waits)])
    assert [(one.communicator, str(one.state)) for one in found] == [
        (4, "waits"), (3, "waits"), (1, "rests"), (2, "moves"),
    ]  # fmt: skip


def test_one_that_rests_is_older_each_second_and_one_that_moves_is_not() -> None:
    kept = Communicators()
    kept.note("a", {"job": changes(stopped(0, at=3), window(0, number=8))}, 100.0)
    waits, moves = now_of(kept, "job", ["a"], 160.0).communicators
    assert (waits.age_s, waits.idle_s, moves.age_s, moves.idle_s) == (90.0, 90.0, 0.1, 0.0)


def test_what_changed_takes_the_place_of_what_was_and_what_is_gone_goes() -> None:
    kept = Communicators()
    kept.note("a", {"job": changes(window(0), window(0, number=8), left_out=2)}, 0.0)
    kept.note("a", {"job": changes(stopped(0, at=5), gone=(8, 9))}, 10.0)
    found = now_of(kept, "job", ["a", "b"], 10.0)
    assert [str(one.state) for one in found.communicators] == ["waits"] and (found.machines, found.left_out) == (1, 0)


def test_a_machine_s_ended_jobs_are_forgotten_and_a_lost_one_s_all() -> None:
    kept = Communicators()
    for machine in "ab":
        kept.note(machine, {"one": changes(window(0)), "two": changes(window(0))}, 0.0)
    kept.retain("a", ["two"])
    now = iter(range(10, 1000, 10))

    def machines(job: str) -> int:
        return now_of(kept, job, "ab", float(next(now))).machines

    assert (machines("one"), machines("two")) == (1, 2)
    kept.forget("b")
    assert (machines("one"), machines("two")) == (0, 1)
    kept.forget("a")
    assert now_of(kept, "two", "ab", 900.0).communicators == () and kept._count == 0 and not kept._machines


def test_a_machine_that_tells_of_ever_more_fills_nothing_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Communicators()
    for first in range(0, 5 * MOST_COMMUNICATORS, MOST_COMMUNICATORS):
        many = [window(0, number=first + at) for at in range(MOST_COMMUNICATORS)]
        kept.note("a", {"job": changes(*many)}, 0.0)
    found = now_of(kept, "job", ["a"], 0.0)
    assert (len(found.communicators), found.left_out) == (MOST_COMMUNICATORS, MOST_COMMUNICATORS)
    monkeypatch.setattr(communicators, "MOST_WINDOWS", kept._count + 1)
    kept.note("b", {"job": changes(window(1, number=1), window(1, number=2))}, 0.0)
    assert now_of(kept, "job", ["b"], FRESH_S).left_out == 1
    kept.forget("a")
    kept.note("b", {"job": changes(window(1, number=2))}, 10.0)
    assert now_of(kept, "job", ["b"], 10.0).left_out == 0


def states_of(monitor: StallTracker, steady: Callable[[], float], awake: str) -> JobStates:
    """Of a job on two machines, of which some give signs of life."""
    running = dict.fromkeys("ab", ())
    fleet: Any = SimpleNamespace(
        asked=lambda job: running if job == "job" else {}, awake=lambda job, now: dict.fromkeys(awake, ())
    )
    nobody: Any = None
    return JobStates(fleet, monitor, nobody, nobody, lambda: NOON, steady)


async def test_what_a_silent_machine_told_last_does_not_hide_that_the_others_wait() -> None:
    monitor = StallTracker()
    monitor.communicators.note("a", {"job": changes(stopped(0, 1, at=371))}, 0.0)
    monitor.communicators.note("b", {"job": changes(window(2, 3))}, 0.0)
    for awake, state, unseen in (("ab", "moves", 0), ("a", "waits", 2)):
        (one,) = (await states_of(monitor, lambda: 0.0, awake).communicators("job")).communicators
        assert (str(one.state), one.unseen) == (state, unseen)


async def test_what_was_put_together_is_answered_again_for_a_moment() -> None:
    monitor, now = StallTracker(), 0.0
    states = states_of(monitor, lambda: now, awake="a")
    monitor.communicators.note("a", {"job": changes(window(0))}, now)
    first = await states.communicators("job")
    monitor.communicators.note("a", {"job": changes(window(0, number=8))}, now)
    now = FRESH_S / 2
    assert await states.communicators("job") is first
    now = FRESH_S
    assert len((await states.communicators("job")).communicators) == 2
    with pytest.raises(WrongUse):
        await states.communicators("ended")


def test_a_rest_is_a_wait_only_inside_of_an_operation() -> None:
    assert stopped(0, at=1).waits and not stopped(0, at=1, age_s=None).waits
    assert not replace(stopped(0, at=1), age_s=RESTS_S - 1).waits and not window(0, age_s=600.0).waits
