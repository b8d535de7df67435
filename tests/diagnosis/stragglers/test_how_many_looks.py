"""How many light looks the server takes of a job that became slower, and whom they name in eight replicas of which one takes longer."""

import random

import pytest

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.stragglers.fail_slow import Slowness, find
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import Layout, build
from hangdog_models.verdict import Activity, Kind
from hangdog_server.settings import ServerSettings

TOPOLOGY = build(Layout(sizes={"dp": 8}, ranks_per_machine=2), Rank(7))[0]
GUILTY = Rank(5)
WAITS = RankState(Activity.COLLECTIVE, Wait.GROUP, operation="all_reduce", label="all_reduce")
WORKS = RankState(Activity.UNKNOWN, Wait.NONE, label="kernels")
#: By how much the work of a sound rank varies from step to step, as a share of it; and jobs drawn of each kind.
VARIES, JOBS = 0.05, 40


def answers(rise: float, looks: int) -> list[Slowness]:
    """What looks at random moments say of jobs in which one rank takes longer by this share."""

    def look(chance: random.Random) -> Look:
        now = chance.random() * (1 + rise)
        ends = {Rank(rank): (1 + rise * (rank == GUILTY)) * (1 + chance.gauss(0, VARIES)) for rank in range(8)}
        return {rank: WORKS if now < end else WAITS for rank, end in ends.items()}

    jobs = [random.Random(seed) for seed in range(JOBS)]
    return [find([look(chance) for _ in range(looks)], TOPOLOGY, rounds=looks) for chance in jobs]


@pytest.mark.parametrize(("rise", "looks", "least"), [(1.0, 16, 0.85), (0.5, 24, 0.9), (0.2, 24, 0.4), (0.2, 48, 0.85)])
def test_a_rank_that_takes_a_fifth_longer_takes_many_looks(rise: float, looks: int, least: float) -> None:
    found = answers(rise, looks)
    slow = [one for one in found if one.kind is Kind.SLOW]
    assert all(one.suspects[0].ranks == (GUILTY,) for one in slow)
    assert len(slow) >= least * JOBS
    assert looks <= ServerSettings().slow_rounds


def test_however_many_looks_a_sound_job_is_called_sound() -> None:
    assert {one.kind for one in answers(0.0, ServerSettings().slow_rounds)} == {Kind.NONE}
