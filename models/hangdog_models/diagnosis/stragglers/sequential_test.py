"""The likelihood ratio of some rounds' votes: one candidate is always late, against late only as its peers are."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log, log1p

from hangdog_models.diagnosis.stragglers.lateness import IN_TIME, LATE, Ballot
from hangdog_models.rules.likelihoods import by_cause, likelihood

OWN_RATES = tuple(by_cause("own_rates").values())
#: How far a kind of candidate may be from the rest in the log odds of being late: from hardly ever to always.
SHIFTS = tuple(step / 2 for step in range(-10, 17))
KIND_SHIFT_WIDTH = likelihood("kind_shift_width")
#: Shifts with less probability than this given the votes change nothing, and cost time.
NEGLIGIBLE = 1e-6
#: The log odds of a round and the shifts of the kinds depend on each other. After so many iterations they agree to 1 %.
TURNS = 3

#: The kind of a candidate, then its vote in each round.
Pattern = tuple[object, ...]


def ratios(ballot: Ballot, looks: int) -> tuple[Counter[Pattern], dict[Pattern, float]]:
    """The number of candidates with each pattern of votes in the first `looks` rounds, and the likelihood ratio of
    each.

    In a round a candidate of a kind is late with the log odds `round + shift`. The round's are fitted so that the
    expected number of late ranks is the observed one. The kind's shift is unknown and averaged over.

    So a candidate is compared with its own kind in the same round. Few peers count for little, and a kind of one can
    never stand out from itself. A degrader is late as its peers are, and besides for its own reason.

    With known rates the ratio would average 1 over healthy jobs. The rates are fitted to the same votes, so this is
    measured.
    """
    patterns: Counter[Pattern] = Counter(zip(ballot.kinds, *ballot.votes[:looks], strict=True))
    seen: dict[object, list[list[int]]] = {}
    for (kind, *votes), count in patterns.items():
        of_kind = seen.setdefault(kind, [[0, 0] for _ in range(looks)])
        for at, vote in enumerate(votes):
            if vote in (IN_TIME, LATE):
                of_kind[at][0 if vote == LATE else 1] += count
    odds = [_solved(looks_seen, [0.0] * len(seen)) for looks_seen in zip(*seen.values(), strict=True)]
    for _ in range(TURNS if len(seen) > 1 else 0):
        shifts = [_mean(_weights(counts, odds)) for counts in seen.values()]
        odds = [_solved(looks_seen, shifts) for looks_seen in zip(*seen.values(), strict=True)]
    found: dict[Pattern, float] = {}
    tables = {kind: _table(_weights(counts, odds), odds) for kind, counts in seen.items()}
    for pattern in patterns:
        found[pattern] = _ratio(tables[pattern[0]], pattern[1:])
    return patterns, found


#: For each shift: its probability and, for each round, the factor of a late vote by own rate.
_Table = list[tuple[float, list[tuple[float, ...]]]]


def _table(weights: Mapping[float, float], odds: Sequence[float]) -> _Table:
    return [
        (weight, [tuple(1 + own * exp(-(look + shift)) for own in OWN_RATES) for look in odds])
        for shift, weight in weights.items()
    ]


def _ratio(table: _Table, votes: Sequence[object]) -> float:
    total = 0.0
    for at, own in enumerate(OWN_RATES):
        in_time = (1 - own) ** votes.count(IN_TIME)
        late = [look for look, vote in enumerate(votes) if vote == LATE]
        for weight, factors in table:
            product = weight * in_time
            for look in late:
                product *= factors[look][at]
            total += product
    return total / len(OWN_RATES)


def _weights(counts: Sequence[Sequence[int]], odds: Sequence[float]) -> dict[float, float]:
    """The shifts a kind may have, with their probabilities after the votes `counts[round] = (late, in time)`."""
    logs = {}
    for shift in SHIFTS:
        logs[shift] = -log1p((shift / KIND_SHIFT_WIDTH) ** 2)
        for (late, in_time), look in zip(counts, odds, strict=True):
            logs[shift] -= late * log1p(exp(-(look + shift))) + in_time * log1p(exp(look + shift))
    best = max(logs.values())
    raw = {shift: exp(value - best) for shift, value in logs.items() if value - best > log(NEGLIGIBLE)}
    total = sum(raw.values())
    return {shift: weight / total for shift, weight in raw.items()}


def _mean(weights: Mapping[float, float]) -> float:
    return sum(shift * weight for shift, weight in weights.items())


def _solved(counts: Iterable[Sequence[int]], shifts: Sequence[float]) -> float:
    """The log odds of one round at which the expected late votes equal the observed ones.

    Half a vote on each side keeps it finite.
    """
    counts = list(counts)
    late = 0.5 + sum(count[0] for count in counts)
    low, high = -20.0, 20.0  # beyond any share of a million ranks
    for _ in range(20):  # bisection to 1e-4, far below the effect of a vote
        middle = (low + high) / 2
        expected = 1 / (1 + exp(-middle)) + sum(
            (count[0] + count[1]) / (1 + exp(-(middle + shift))) for count, shift in zip(counts, shifts, strict=True)
        )
        low, high = (middle, high) if expected < late else (low, middle)
    return (low + high) / 2
