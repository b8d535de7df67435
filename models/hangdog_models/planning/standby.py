"""How many spare machines to keep warm: the demand while a machine is being replaced, and what too few would cost.

Incidents hit machines independently at a daily rate, and a machine is replaced after the replenish time. The incidents
of that time compete for the spares. ByteRobust (SOSP 2025, section 6.2) sizes by the 99th percentile of a binomial with
one machine an incident: `single`. An over-eviction takes a whole parallel group, which a binomial lacks. `compound`
counts a Poisson number of incidents, each of a size drawn from shares, by Panjer's recursion (1981).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, expm1, log, log1p

from hangdog_models.counts import counted
from hangdog_models.errors import WrongUse

DAY_S = 86400.0
#: Incidents a machine and day where nobody gives a rate: those of Llama 3's 16,384 GPUs.
PUBLISHED_DAILY = 0.0038
#: How sure one may be that the spares suffice: ByteRobust's percentile.
QUANTILE = 0.99
#: Probability left out at the end of a demand: far below any percentile in use.
_END = 1e-12
#: The logarithm of a probability below which all later, smaller ones sum to less than that.
_NEGLIGIBLE = -46.0
#: Sums are scaled down beyond this, so that the recursion neither overflows nor begins at an exp(-rate) of 0.
_HUGE = 1e200
#: The largest fleet: ten times the largest published cluster. A recursion over so many takes a second.
MOST_MACHINES = 1_000_000

#: Probability that 0, 1, 2, ... machines are needed at once; what is left out beyond its end is below 1e-12.
Demand = Sequence[float]


@dataclass(frozen=True, slots=True)
class FleetDemand:
    """Machines of a job, incidents a machine and day, and the time until a machine is replaced.

    `sizes`: the share of incidents that take so many machines; they sum to 1. Raises WrongUse if they do not.
    """

    machines: int
    daily: float
    replenish_s: float = DAY_S
    sizes: Mapping[int, float] = field(default_factory=lambda: {1: 1.0})

    def __post_init__(self) -> None:
        if not 1 <= self.machines <= MOST_MACHINES:
            raise WrongUse(
                f"{self.machines} machines cannot be planned for", f"give 1 to {MOST_MACHINES}", code="out-of-range"
            )
        if not 0 < self.daily < 1:
            raise WrongUse(
                f"{self.daily:g} is no daily failure rate",
                "give the incidents per machine and day, such as 0.0038",
                code="out-of-range",
            )
        if not self.replenish_s > 0:
            raise WrongUse(
                f"{self.replenish_s:g} s is no time", "say how long it takes to replace a machine", code="out-of-range"
            )
        wrong = [size for size, share in self.sizes.items() if size < 1 or not 0 < share <= 1]
        if wrong or abs(sum(self.sizes.values()) - 1) > 1e-9:
            raise WrongUse(
                "the shares of incidents by size do not sum to 1", "give shares whose sum is below 1", code="bad-shares"
            )
        if self.incidents * self.mean_size > self.machines:
            raise WrongUse(
                "more machines would be missing than the job has",
                "give a shorter time to replace one, or a lower rate",
                code="impossible-plan",
            )

    @property
    def incidents(self) -> float:
        """Mean incidents while one machine is being replaced."""
        return self.machines * self.daily * self.replenish_s / DAY_S

    @property
    def mean_size(self) -> float:
        """Mean machines that one incident takes."""
        return sum(size * share for size, share in self.sizes.items())


@dataclass(frozen=True, slots=True)
class Pool:
    """So many spares: the probability that they fall short while one machine is replaced, and the mean number missing."""

    spares: int
    short: float
    shortfall: float


def single(fleet: FleetDemand) -> Demand:
    """The demand if each machine fails at most once and alone: binomial, as ByteRobust sizes. Shares are ignored."""
    chance = -expm1(-fleet.daily * fleet.replenish_s / DAY_S) if fleet.replenish_s != DAY_S else fleet.daily
    odds = log(chance) - log1p(-chance)
    logs = [fleet.machines * log1p(-chance)]
    for k in range(1, fleet.machines + 1):
        logs.append(logs[-1] + odds + log(fleet.machines - k + 1) - log(k))
        if k > fleet.machines * chance and logs[-1] < _NEGLIGIBLE:
            break
    return [exp(each) for each in logs]


def compound(fleet: FleetDemand) -> Demand:
    """The demand of Poisson incidents with sizes: g_k = (rate / k) * sum over sizes j of j * share_j * g_(k-j)."""
    rate, sizes = fleet.incidents, sorted(fleet.sizes.items())
    values, scale = [1.0], -rate
    for k in range(1, fleet.machines + 1):
        values.append(rate / k * sum(size * share * values[k - size] for size, share in sizes if size <= k))
        scale = _scaled(values, scale)
        if _ended(values, scale, k, rate * fleet.mean_size):
            break
    return [exp(log(value) + scale) if value else 0.0 for value in values]


def spares(demand: Demand, quantile: float) -> int:
    """The fewest spares that are enough with this probability; if none are, as many as the demand covers."""
    total = 0.0
    for count, probability in enumerate(demand):
        total += probability
        if total >= quantile:
            return count
    return len(demand) - 1


def pool(demand: Demand, count: int) -> Pool:
    """What so many spares are worth against a demand."""
    beyond = [(k - count, probability) for k, probability in enumerate(demand) if k > count]
    return Pool(count, sum(p for _, p in beyond), sum(lack * p for lack, p in beyond))


def too_few_spares(machines: int, kept: int) -> str:
    """A sentence for a job that has fewer spares than the binomial asks for at the published rate; else empty."""
    wanted = spares(single(FleetDemand(min(machines, MOST_MACHINES), PUBLISHED_DAILY)), QUANTILE)
    if kept >= wanted:
        return ""
    named = f"{counted(machines, 'machine')} with {counted(kept, 'spare') if kept else 'no spare'}"
    return (
        f"{named}: {wanted} would suffice for a day with {QUANTILE:.0%}, at {PUBLISHED_DAILY:g} incidents a machine and day "
        f"(with your own rate: hangdog plan standby --machines {machines} --p RATE)"
    )


def _scaled(values: list[float], scale: float) -> float:
    """Divides all values once the last is huge. Returns the logarithm of the factor that restores them."""
    if values[-1] < _HUGE:
        return scale
    values[:] = [value / _HUGE for value in values]
    return scale + log(_HUGE)


def _ended(values: list[float], scale: float, at: int, mean: float) -> bool:
    """Whether the rest is negligible: beyond the mean, probabilities fall. Checked more rarely for longer sums."""
    return at > mean and at % (16 + int(mean) // 16) == 0 and sum(values) * exp(scale) >= 1 - _END
