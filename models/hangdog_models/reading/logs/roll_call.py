"""Calls the roll of a job's start-up over all its logs: who never said that it came to the barrier, or to the store."""

from collections.abc import Collection, Iterable, Sequence

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
    signed_up = _signed_up(logs)
    return (*{one.ranks: one for one in found if one is not None}.values(), *((signed_up,) if signed_up else ()))


def _signed_up(logs: Sequence[Arrivals]) -> Finding | None:
    """Who signed up with Lightning, where not all did. No log counts those who came, so a log may lack: no rank is named as late."""
    size = max((one.size for one in logs), default=0)
    came: dict[int, int] = {}
    for one in logs:
        for rank, times in one.members.items():
            came[rank] = max(times, came.get(rank, 0))  # two files may hold the same lines
    if any(one.complete for one in logs) or len(came) < 2 or len(came) >= size or max(came) >= size or size > MAX_RANK:
        return None
    late = tuple(Rank(number) for number in range(size) if number not in came)
    who = f"rank{'' if len(late) == 1 else 's'} {format_ranks(late)}"
    twice = tuple(sorted(Rank(rank) for rank, times in came.items() if times > 1))
    if twice and sum(came.values()) == size:
        words = f"{size} processes signed up, ranks {format_ranks(twice)} more than once and {who} never: machines were started with the same number"
        return Finding(SOURCE, "ranks started twice", Impact.PROGRAM, words)
    words = f"{len(came)} of {counted(size, 'rank')} signed up at start-up in what was read, {who} did not: were they started?"
    return Finding(SOURCE, UNHEARD, Impact.VICTIM, words)


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
