"""Warm standby: the published pools, the percentiles of section 7.1 of our notes on diagnostics, and laws of every demand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import WrongUse
from hangdog_models.planning.standby import DAY_S, FleetDemand, compound, pool, single, spares


def over(share: float, size: int) -> dict[int, float]:
    return {1: 1 - share, size: share} if size > 1 else {1: 1.0}


def test_the_pools_of_byterobust() -> None:
    assert [spares(single(FleetDemand(machines, 0.0012)), 0.99) for machines in (128, 256, 512, 1024)] == [2, 2, 3, 4]


@pytest.mark.parametrize(
    ("daily", "expected"),
    [(0.001, [1, 1, 1, 2, 3, 4, 6]), (0.0038, [1, 2, 3, 4, 6, 9, 15]), (0.01, [2, 3, 4, 7, 11, 18, 32])],
)
def test_the_binomial_of_a_day(daily: float, expected: list[int]) -> None:
    assert [spares(single(FleetDemand(n, daily)), 0.99) for n in (16, 64, 128, 256, 512, 1024, 2048)] == expected


@pytest.mark.parametrize(
    ("machines", "expected"), [(1024, [2, 3, 6, 9, 20]), (2048, [2, 5, 9, 15, 35]), (128, [1, 1, 2, 3, 5])]
)
def test_the_window_is_the_replenish_time(machines: int, expected: list[int]) -> None:
    fleets = [FleetDemand(machines, 0.0038, hours * 3600.0) for hours in (1, 4, 12, 24, 72)]
    assert [spares(compound(fleet), 0.99) for fleet in fleets] == expected


@pytest.mark.parametrize(
    ("machines", "size", "p95", "p99", "short", "shortfall"),
    [
        (128, 1, 2, 3, 0.0002, 0.0002),
        (128, 8, 3, 9, 0.0476, 0.2201),
        (1024, 1, 7, 9, 0.3499, 0.7210),
        (1024, 4, 11, 14, 0.5007, 1.7514),
        (1024, 8, 18, 23, 0.5087, 3.3079),
        (1024, 16, 34, 39, 0.5087, 6.4209),
        (2048, 8, 27, 35, 0.9207, 9.2848),
    ],
)
def test_one_incident_in_ten_that_takes_a_whole_group(
    machines: int, size: int, p95: int, p99: int, short: float, shortfall: float
) -> None:
    demand = compound(FleetDemand(machines, 0.0038, sizes=over(0.1, size)))
    four = pool(demand, 4)
    assert (spares(demand, 0.95), spares(demand, 0.99)) == (p95, p99)
    assert four.short == pytest.approx(short, abs=5e-5)
    assert four.shortfall == pytest.approx(shortfall, abs=5e-5)


FLEETS = st.builds(
    lambda machines, share, reach, size: FleetDemand(machines, reach / 10, DAY_S, over(share, min(size, machines))),
    st.integers(2, 3000), st.floats(0.01, 0.9), st.floats(0.0001, 0.5), st.integers(2, 8),
)  # fmt: skip


@given(FLEETS, st.integers(0, 50))
def test_a_demand_is_a_distribution_with_the_mean_it_must_have(fleet: FleetDemand, count: int) -> None:
    for demand, mean in ((compound(fleet), fleet.incidents * fleet.mean_size), (single(fleet), fleet.incidents)):
        if len(demand) <= fleet.machines:  # else the job's size cut it off
            assert sum(demand) == pytest.approx(1, abs=1e-9)
            assert sum(k * p for k, p in enumerate(demand)) == pytest.approx(mean, rel=1e-6, abs=1e-9)
        assert spares(demand, 0.9) <= spares(demand, 0.99)
        fewer, more = pool(demand, count), pool(demand, count + 1)
        assert (fewer.short, fewer.shortfall) >= (more.short, more.shortfall)


def test_rates_at_which_exp_underflows_are_borne() -> None:
    for demand in (single(FleetDemand(200_000, 0.01)), compound(FleetDemand(200_000, 0.01))):
        assert 2000 < spares(demand, 0.99) < 2150


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: FleetDemand(0, 0.01),
        lambda: FleetDemand(8, 0.0),
        lambda: FleetDemand(8, 1.0),
        lambda: FleetDemand(8, 0.01, 0.0),
        lambda: FleetDemand(8, 0.01, sizes={1: 0.5}),
        lambda: FleetDemand(8, 0.5, 30 * DAY_S),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(WrongUse):
        wrong()
