"""When a standstill is asked after: who waits, who works meanwhile, and how long that is borne."""

import pytest

from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign, StallTimeouts, suspect

PATIENCE = StallTimeouts()


def bears(sign: Sign) -> float:
    """As of a job whose phases are known."""
    return PATIENCE.of(sign.doing) * (1.0 if sign.overdue else sign.crowding)


def signs(seconds: float, others: Doing | None = None) -> dict[Rank, Sign]:
    """Ranks 0 to 6 are overdue; rank 7 does something else, or is overdue too."""
    found = {Rank(rank): Sign(Doing.STILL, seconds, overdue=True) for rank in range(7)}
    found[Rank(7)] = Sign(others or Doing.STILL, seconds, overdue=others is None)
    return found


def test_all_still_is_a_suspicion_at_once() -> None:
    found = suspect(signs(6.0), (), bears)
    assert found is not None
    assert found.seconds == 6.0 and found.why.startswith("ranks 0-7 ") and found.why.endswith(" 6 s")


def test_a_job_with_a_rank_that_goes_on_is_none() -> None:
    assert suspect(signs(600.0), [Rank(8)], bears) is None


def test_waiting_within_its_rhythm_is_none() -> None:
    assert suspect({Rank(0): Sign(Doing.STILL, 600.0)}, (), bears) is None


@pytest.mark.parametrize("doing", [doing for doing in Doing if doing is not Doing.STILL])
def test_who_works_while_all_wait_is_borne_for_a_while(doing: Doing) -> None:
    borne = PATIENCE.of(doing)
    assert suspect(signs(borne - 0.1, doing), (), bears) is None
    found = suspect(signs(borne + 0.1, doing), (), bears)
    assert found is not None
    assert found.why.endswith(f"; rank 7 {doing}")


def test_work_on_crowded_cores_is_borne_for_longer() -> None:
    found = signs(PATIENCE.compiling_s * 2, Doing.COMPILING)
    found[Rank(7)] = Sign(Doing.COMPILING, 20.0, crowding=2.5)
    assert suspect(found, (), bears) is None
    found[Rank(7)] = Sign(Doing.COMPILING, 20.0, crowding=1.9)
    assert suspect(found, (), bears) is not None
    found[Rank(7)] = Sign(Doing.LOOPING, 20.0, overdue=True, crowding=4.0)
    assert suspect(found, (), bears) is not None  # nor does who waits in a loop
    still = {Rank(0): Sign(Doing.STILL, 6.0, overdue=True, crowding=4.0)}
    assert suspect(still, (), bears) is not None  # who stands still wants no core


def test_one_that_stands_for_a_moment_only_is_borne_too() -> None:
    found = signs(30.0)
    found[Rank(7)] = Sign(Doing.STILL, 3.0)
    assert suspect(found, (), bears) is None
