"""How a communicator goes on, and who is behind in it, in words for pages, commands and programs."""

from hangdog_models.counts import counted
from hangdog_models.progress.communicator_window import CommunicatorState, JobCommunicator
from hangdog_models.ranks import format_ranks

#: Machines that are named with their ranks.
NAMED = 4


def title(one: JobCommunicator) -> str:
    """What it is called: its name, else its number."""
    return one.name or number(one.communicator)


def number(communicator: int) -> str:
    """A communicator's number as NCCL writes it."""
    return f"{communicator:016x}"


def state_text(one: JobCommunicator) -> str:
    """What it does, without how long: pages count that by themselves."""
    if one.state is CommunicatorState.WAITS:
        return f"waits inside of {one.operation or 'an operation'}"
    if one.state is CommunicatorState.RESTS:
        return "completes nothing" if one.completed_only else "rests"
    return f"moves, {rate_text(one.rate)} operations a second"


def message(one: JobCommunicator) -> str:
    """All of it in one line."""
    lasts = "" if one.state is CommunicatorState.MOVES else f" for {lasts_s(one):.0f} s"
    behind = behind_text(one)
    return f"{state_text(one)}{lasts}{f'; behind: {behind}' if behind else ''}"


def cells(one: JobCommunicator) -> tuple[str, ...]:
    """What a line of a table says, apart from the seconds that pass."""
    return (
        title(one),
        state_text(one),
        behind_text(one),
        orders_text(one),
        seen_text(one),
        number(one.communicator),
        str(one.behind),
    )


def lasts_s(one: JobCommunicator) -> float:
    """For how long it has waited or rested."""
    return one.age_s if one.state is CommunicatorState.WAITS and one.age_s is not None else one.idle_s


def orders_text(one: JobCommunicator) -> str:
    """How many collectives its ranks have entered; empty where that is not known."""
    if one.lowest is None or one.highest is None:
        return ""
    return f"{one.lowest:,}" if one.lowest == one.highest else f"{one.lowest:,} to {one.highest:,}"


def seen_text(one: JobCommunicator) -> str:
    """Of how many of its ranks anything is known."""
    seen = f"{one.seen:,}" if not one.unseen else f"{one.seen:,} of {one.size:,}"
    return f"{seen} on {counted(one.machines, 'machine')}"


def rate_text(rate: float) -> str:
    """A rate to two digits."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def behind_text(one: JobCommunicator) -> str:
    """Who is behind in it, if that can be known; empty where nothing waits."""
    if one.behind:
        return ", ".join(f"{ranks} on {machine}" for ranks, machine in stragglers(one)) + more_text(one)
    if one.state is not CommunicatorState.WAITS:
        return ""
    unseen = f"; of {counted(one.unseen, 'rank')} nothing is known" if one.unseen else ""
    if one.lowest is None:
        return f"not known: the counts of its ranks cannot be compared{unseen}"
    return f"none of the {counted(one.seen, 'rank')} that are seen{unseen}"


def stragglers(one: JobCommunicator) -> list[tuple[str, str]]:
    """The ranks that are behind on each of the first machines, as `rank 3` or `ranks 3-5`, and the machine."""
    return [
        (f"{'rank' if len(each.ranks) == 1 else 'ranks'} {format_ranks(each.ranks)}", each.machine)
        for each in one.behind[:NAMED]
    ]


def more_text(one: JobCommunicator) -> str:
    """How many ranks are behind on the other machines; empty where none is."""
    more = one.behind_ranks - sum(len(each.ranks) for each in one.behind[:NAMED])
    return f" and {counted(more, 'more rank')}" if more else ""
