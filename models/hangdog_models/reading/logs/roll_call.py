"""Calls the roll of a job's start-up over all its logs: who never said that it came to the barrier, or to the store."""

from collections.abc import Collection, Iterable

from hangdog_models.counts import counted
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import MAX_RANK, Rank, format_ranks
from hangdog_models.reading.logs.log_process import SOURCE
from hangdog_models.reading.logs.startup_lines import Arrivals, StoreBarrier

#: The code of what a roll call finds.
UNHEARD = "not heard at start-up"


def unheard(logs: Iterable[Arrivals], speakers: Collection[Rank]) -> tuple[Finding, ...]:
    """The ranks that are missing by name, one finding for each barrier; `speakers` are the ranks of which there is a log.

    A rank is named only where as many are silent as the log counts missing: else some logs were lost, not ranks.
    """
    logs = list(logs)
    passed = {key for one in logs for key in one.passed}
    barriers: dict[str, StoreBarrier] = {}
    for one in logs:
        for key, barrier in one.barriers.items():
            if key not in passed:
                known = barriers.setdefault(key, StoreBarrier(barrier.world, barrier.arrived, 0))
                known.world, known.arrived = max(known.world, barrier.world), max(known.arrived, barrier.arrived)
                known.came |= barrier.came
    found = [_named(f"barrier {key}", one.arrived, one.world, one.came) for key, one in sorted(barriers.items())]
    clients = [one.clients for one in logs if one.clients is not None]
    if clients:
        arrived, expected = max(clients)
        found.append(_named("store", arrived, expected, {int(rank) for rank in speakers}))
    return tuple({one.ranks: one for one in found if one is not None}.values())


def _named(what: str, arrived: int, expected: int, came: set[int]) -> Finding | None:
    if not came or arrived >= expected or expected > MAX_RANK or max(came) >= expected:
        return None  # numbers beyond the group's size are not its own
    silent = expected - len(came)
    if silent != expected - arrived or 2 * silent > expected:
        return None
    ranks = tuple(Rank(number) for number in range(expected) if number not in came)
    who = f"rank{'' if silent == 1 else 's'} {format_ranks(ranks)} never did"
    words = f"{arrived} of {counted(expected, 'rank')} came to the {what} at start-up, {who}"
    return Finding(SOURCE, UNHEARD, Impact.VICTIM, words, ranks=ranks)
