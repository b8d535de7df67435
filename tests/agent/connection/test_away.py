"""What the agent decides while no server is there: when it looks closer, and that it records each standstill once."""

from hangdog_agent.connection.offline_policy import OfflinePolicy, Thought
from hangdog_agent.discovery.watch import LocalJob
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import ASKED_AGAIN_S, OVER_S, Doing, Sign

JOB = LocalJob("llama", (Rank(0), Rank(1)), 8, "tp=8")
WHOSE = {"llama": "one"}
NOTHING: dict[str, dict[Rank, Sign]] = {}


def stuck(seconds: float, *ranks: int, doing: Doing = Doing.STILL) -> dict[str, dict[Rank, Sign]]:
    return {"llama": {Rank(rank): Sign(doing, seconds, overdue=doing is Doing.STILL) for rank in ranks or (0, 1)}}


def recorded(away: OfflinePolicy, now: float, signs: dict[str, dict[Rank, Sign]], welcomed: bool = False) -> bool:
    return bool(away.think(now, welcomed, (JOB,), signs, WHOSE).record)


def test_a_standstill_is_recorded_once_and_the_next_one_after_the_job_moved() -> None:
    away = OfflinePolicy(5.0, 0.0)
    assert not recorded(away, 0.0, NOTHING)
    assert recorded(away, 100.0, stuck(6.0))
    assert not any(recorded(away, 101.0 + second, stuck(7.0 + second)) for second in range(300))
    assert not recorded(away, 401.0, NOTHING)
    assert not recorded(away, 402.0, stuck(0.5)), "moved for a moment: still the same"
    for second in range(int(OVER_S) + 1):
        recorded(away, 410.0 + second, NOTHING)
    assert recorded(away, 440.0, stuck(6.0))


def test_nothing_is_recorded_while_a_server_is_there_or_was_just_now() -> None:
    away = OfflinePolicy(5.0, 0.0)
    assert not any(recorded(away, float(now), stuck(now + 6.0), welcomed=True) for now in range(50))
    assert not any(recorded(away, float(now), stuck(now + 6.0)) for now in range(50, 55))
    assert recorded(away, 55.0, stuck(61.0))


def test_who_goes_on_or_works_keeps_it_from_being_recorded() -> None:
    away = OfflinePolicy(0.0, 0.0)
    assert not recorded(away, 10.0, stuck(6.0, 0)), "rank 1 goes on"
    busy = stuck(6.0, 0)["llama"] | stuck(6.0, 1, doing=Doing.WORKING)["llama"]
    assert not recorded(away, 11.0, {"llama": busy})
    assert recorded(away, 12.0, stuck(7.0))


def test_an_overdue_job_is_looked_at_closer_again_and_again_but_only_where_no_server_asks() -> None:
    away = OfflinePolicy(1e9, 0.0)
    one = stuck(6.0, 0)
    assert away.think(0.0, True, (JOB,), one, WHOSE) == Thought()
    asked = [now for now in range(20) if away.think(float(now), False, (JOB,), one, WHOSE).closer]
    assert asked == [0, int(ASKED_AGAIN_S), 2 * int(ASKED_AGAIN_S)]
    assert away.think(50.0, False, (JOB,), stuck(3.0, 0, doing=Doing.LOOPING), WHOSE) == Thought()


def test_an_agent_that_is_started_again_does_not_record_the_same_standstill_again() -> None:
    for whose, since_s, again in (("one", 305.0, False), ("another", 305.0, True), ("one", 100.0, True)):
        away = OfflinePolicy(0.0, 1000.0, {"llama": whose})
        away.think(1001.0, False, (JOB,), NOTHING, WHOSE)
        assert recorded(away, 1310.0, stuck(since_s)) is again
