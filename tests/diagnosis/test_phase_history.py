"""What a job was seen to survive, and how long the others may wait because of it."""

import pytest

from hangdog_models.phase_history import LONGEST_S, PLACES, PhaseHistory
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign, StallTimeouts, suspect

TIMEOUTS = StallTimeouts()
KNOWN = TIMEOUTS.young_s + 1
EVALUATION = "evaluate of train.py"
HERE = {"node-0": [Rank(rank) for rank in range(4)]}


def waiting(seconds: float, place: str = EVALUATION, doing: Doing = Doing.WORKING) -> dict[Rank, Sign]:
    """Rank 0 does something while the others wait for it."""
    found = {Rank(rank): Sign(Doing.STILL, seconds, place="barrier", waits=True) for rank in (1, 2, 3)}
    return found | {Rank(0): Sign(doing, seconds, place=place)}


def survived(seconds: int) -> PhaseHistory:
    """A job that is known, and has seen one evaluation of so many seconds."""
    history = PhaseHistory(-KNOWN)
    for second in range(seconds + 1):
        history.watch(waiting(second), HERE)
    assert history.under_way
    history.watch({}, HERE)
    assert not history.under_way
    return history


def suspected(history: PhaseHistory, signs: dict[Rank, Sign], now: float = 0.0) -> bool:
    return suspect(signs, (), lambda sign: history.bears(sign, TIMEOUTS, now)) is not None


def test_while_a_job_is_young_whoever_gets_on_is_borne_for_minutes() -> None:
    for doing in Doing:
        if doing is not Doing.STILL:
            assert not suspected(PhaseHistory(0.0), waiting(TIMEOUTS.young_patience_s - 1, doing=doing))
            assert suspected(PhaseHistory(0.0), waiting(TIMEOUTS.young_patience_s + 1, doing=doing))
            assert suspected(PhaseHistory(0.0), waiting(TIMEOUTS.of(doing) + 1, doing=doing), KNOWN)


def test_who_is_overdue_in_a_loop_waits_there_and_is_no_phase() -> None:
    polling = {Rank(rank): Sign(Doing.LOOPING, 12.0, overdue=True, place="poll of ddp.py") for rank in range(4)}
    assert suspected(PhaseHistory(0.0), polling)


@pytest.mark.parametrize(("waiting", "suspected"), [(2, True), (4, True), (5, False), (7, False)])
def test_where_half_poll_the_rest_that_waits_is_no_reason_to_bear_it(waiting: int, suspected: bool) -> None:
    """As where a network parts in the middle of a barrier. Where most of them wait, the others may be at work for them."""
    history = PhaseHistory(since=0.0)
    still = Sign(Doing.STILL, 20.0, overdue=True, waits=True)
    loops = Sign(Doing.LOOPING, 20.0, overdue=True)
    found = {Rank(rank): still if rank < waiting else loops for rank in range(8)}
    assert (suspect(found, (), lambda sign: history.bears(sign, StallTimeouts(), 100.0)) is not None) is suspected


def test_where_most_poll_and_nobody_waits_one_of_which_that_is_not_known_polls_too() -> None:
    polling = {Rank(rank): Sign(Doing.LOOPING, 12.0, overdue=True, place="poll of ddp.py") for rank in range(3)}
    unknown = Sign(Doing.LOOPING, 12.0, place="step of ddp.py")
    assert suspected(PhaseHistory(0.0), polling | {Rank(3): unknown})
    assert not suspected(PhaseHistory(0.0), waiting(12.0) | {Rank(0): unknown})


def test_who_loops_in_a_wait_waits() -> None:
    """As a barrier that looks again and again: nobody has to wait for it, and what it does there is no phase."""
    history = PhaseHistory(0.0)
    loops = Sign(Doing.LOOPING, 9.0, place="barrier of distributed_c10d.py", waits=True)
    stopped = waiting(9.0) | {Rank(0): Sign(Doing.STILL, 9.0, overdue=True), Rank(1): loops}
    assert suspected(history, stopped)
    history.watch(stopped, HERE)
    assert not history.under_way


def test_who_polls_while_others_wait_for_it_may_be_at_work() -> None:
    """It asks a judge again and again, say, while its step lines stop: no more than another evaluation."""
    polls = Sign(Doing.LOOPING, 60.0, overdue=True, place="poll of judge.py")
    assert not suspected(PhaseHistory(0.0), waiting(60.0) | {Rank(0): polls})
    assert suspected(PhaseHistory(0.0), waiting(301.0) | {Rank(0): polls})


def test_a_phase_that_ended_is_borne_for_a_multiple_at_its_place_and_nowhere_else() -> None:
    history = survived(200)
    assert not suspected(history, waiting(599.0))
    assert suspected(history, waiting(601.0))
    assert suspected(history, waiting(TIMEOUTS.working_s + 1, "export of train.py"))


def test_a_rank_that_ended_in_its_phase_taught_nothing() -> None:
    history = PhaseHistory(-KNOWN)
    history.watch(waiting(500.0), HERE)
    history.watch({}, {"node-0": [Rank(1)]})
    assert history.longest == {} and not history.under_way


def test_who_stands_still_by_itself_is_no_phase() -> None:
    """The rhythm of a rank that stands still is known to its agent, and what others wait for it teaches nothing here."""
    history = PhaseHistory(-KNOWN)
    history.watch(waiting(500.0, doing=Doing.STILL), HERE)
    assert not history.under_way


def test_what_is_remembered_is_bounded() -> None:
    history = PhaseHistory(-KNOWN)
    for number in range(2 * PLACES):
        history.watch(waiting(1e9 + number, f"place {number}"), HERE)
        history.watch({}, HERE)
    assert len(history.longest) == PLACES and set(history.longest.values()) == {LONGEST_S}


def test_others_need_not_be_overdue_where_somebody_is_seen_to_hold_them_up() -> None:
    """They have waited for longer at that place, for an evaluation: it says nothing of what holds them up now."""
    stopped = waiting(9.0) | {Rank(0): Sign(Doing.STILL, 9.0, overdue=True, place="forward")}
    assert suspected(PhaseHistory(0.0), stopped)
    for_a_moment = waiting(9.0) | {Rank(0): Sign(Doing.STILL, 3.0, place="forward")}
    assert not suspected(PhaseHistory(0.0), for_a_moment)


def test_where_all_wait_the_rhythm_of_each_counts() -> None:
    signs = {rank: sign for rank, sign in waiting(600.0).items() if rank}
    assert not suspected(PhaseHistory(0.0), signs)
    overdue = {rank: Sign(Doing.STILL, 600.0, overdue=True, waits=True) for rank in signs}
    assert suspected(PhaseHistory(0.0), overdue)
    assert not suspected(PhaseHistory(0.0), overdue | {Rank(1): signs[Rank(1)]})
